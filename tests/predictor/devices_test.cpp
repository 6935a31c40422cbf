// A device that is described wrongly makes every prediction for it wrong.
#include "predictor/data/devices.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::predictor {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Devices, TheInstalledFileHasTheSharesOfTheH200) {
  const auto devices = read_devices(SLUICE_TEST_PREDICTOR "/devices.csv");
  const DeviceInfo& whole = device_info(devices, "h200");
  for (const int sms : {96, 64, 32, 16}) {
    const DeviceInfo& share = device_info(devices, "H200@" + std::to_string(sms));
    EXPECT_NEAR(share.fp32_tflops, whole.fp32_tflops * sms / 132, 0.05) << sms;
    EXPECT_LT(share.bandwidth_gbs, whole.bandwidth_gbs) << sms;
  }
  EXPECT_THAT([&] { (void)device_info(devices, "B200"); },
              ThrowsMessage<base::UsageError>(
                  HasSubstr("no device 'B200' in devices.csv, which has H200, ")));
}

TEST(Devices, ABrokenLineIsNamed) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "devices.csv").string();
  std::ofstream(file) << "# why\nx,1,2,3,4\ny,1,2,,4\n";
  EXPECT_THAT(
      [&] { (void)read_devices(file); },
      ThrowsMessage<base::UsageError>(HasSubstr("devices.csv, line 3: '' is not a positive")));
}

}  // namespace
}  // namespace sluice::predictor
