// A device that is described wrongly makes every prediction for it wrong.
#include "predictor/data/devices.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "base/error.hpp"
#include "synthetic.hpp"
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
    EXPECT_NE(device_numbers(share), device_numbers(whole)) << sms;
  }
  EXPECT_THAT([&] { (void)device_info(devices, "B200"); },
              ThrowsMessage<base::UsageError>(HasSubstr("no device 'B200' in devices.csv")));
}

TEST(Devices, NumbersAreRatiosToALargeDevice) {
  const DeviceInfo device = test::made_up_device("x", 3);
  const std::array<float, kDeviceNumbers> expected{1, 0.5, -1, 0, 1, -2, 1, -2};
  EXPECT_EQ(device_numbers(device), expected);
}

TEST(Devices, ABrokenLineIsNamed) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "devices.csv").string();
  std::ofstream(file) << "# why\nx,1,2,3,4,5,6,7,8\ny,1,2,3,4,5,,7,8\n";
  EXPECT_THAT(
      [&] { (void)read_devices(file); },
      ThrowsMessage<base::UsageError>(HasSubstr("devices.csv, line 3: '' is not a positive")));
}

}  // namespace
}  // namespace sluice::predictor
