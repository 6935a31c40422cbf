// Records are AutoTVM's to the letter, and an interrupted run loses its last line only. Prevents:
// records that other tools cannot read, and runs that begin anew after a kill.
#include "profiler/records/record.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/error.hpp"
#include "profiler/packs/xz_lines.hpp"
#include "profiler/records/python_json.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {
namespace {

using test::TempFolder;
using testing::HasSubstr;

/// A line as AutoTVM 0.8 writes it.
constexpr const char* kAutoTvm =
    R"({"input": ["cuda -keys=cuda,gpu -max_num_threads=1024 -model=unknown", "conv2d_nchw.cuda", )"
    R"([["TENSOR", [1, 3, 224, 224], "float32"], ["TENSOR", [64, 3, 7, 7], "float32"], [2, 2]], {}], )"
    R"("config": {"index": 108, "code_hash": null, "entity": [["tile_f", "sp", [-1, 8, 16, 1]], )"
    R"(["auto_unroll_max_step", "ot", 1500], ["unroll_explicit", "ot", 1]]}, )"
    R"("result": [[3.0722e-05, 0.00012, 1.5], 0, 4.2107760906219482, 1650000000.25], )"
    R"("version": 0.2, "tvm_version": "0.8.0"})";

TEST(Records, ALineOfAutoTvmSurvivesByteForByte) {
  // Its all_cost has one digit too many for a double: Python prints the shortest text that reads
  // back as the same number.
  std::string line = kAutoTvm;
  const std::string longer = "4.2107760906219482";
  line.replace(line.find(longer), longer.size(), "4.210776090621948");
  EXPECT_EQ(to_line(record_of(line)), line);
  const Record record = record_of(kAutoTvm);
  EXPECT_EQ(record.index, 108U);
  EXPECT_EQ(record.seconds.size(), 3U);
  EXPECT_DOUBLE_EQ(record.cost(), 0.00012);
  EXPECT_FALSE(record.details);
}

TEST(Records, NumbersAreWrittenAsPythonWritesThem) {
  const auto text = [](double value) { return python_json(value); };
  EXPECT_EQ(text(0), "0.0");
  EXPECT_EQ(text(1e-4), "0.0001");
  EXPECT_EQ(text(1e-5), "1e-05");
  EXPECT_EQ(text(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(text(1e15), "1000000000000000.0");
  EXPECT_EQ(text(0.1 + 0.2), "0.30000000000000004");
}

Record record_with_details() {
  Record record = record_of(kAutoTvm);
  record.details = RecordDetails{.task = "t",
                                 .program = "p",
                                 .device = "H200@64",
                                 .sms = 64,
                                 .registers = 40,
                                 .spill_bytes = 8,
                                 .spread = 1.02};
  return record;
}

TEST(Records, DetailsComeBack) {
  const Record record = record_of(to_line(record_with_details()));
  ASSERT_TRUE(record.details);
  EXPECT_EQ(record.details->device, "H200@64");
  EXPECT_EQ(record.details->sms, 64);
  EXPECT_EQ(record.details->registers, 40);
  EXPECT_EQ(record.details->spill_bytes, 8);
  EXPECT_DOUBLE_EQ(record.details->spread, 1.02);
  EXPECT_THAT(to_line(record), HasSubstr(R"("tvm_version": "0.8.0", "sluice": {"task": "t", )"));
}

TEST(Records, OnlyTimesOfCorrectUndisturbedProgramsAreGood) {
  Record record = record_with_details();
  EXPECT_TRUE(record.good());
  record.details->disturbed = true;
  EXPECT_FALSE(record.good());
  record = record_with_details();
  record.error = MeasureError::kWrongAnswer;
  EXPECT_FALSE(record.good());
  EXPECT_EQ(record.cost(), INFINITY);
}

TEST(Records, ATornLastLineIsDroppedAndCutOff) {
  const TempFolder folder;
  const std::string line = to_line(record_with_details());
  const std::string file = folder.write("records.jsonl", line + "\n" + line.substr(0, 50));
  const Records found = read_records(file);
  EXPECT_TRUE(found.torn);
  EXPECT_EQ(found.records.size(), 1U);
  RecordFile(file).add(record_with_details());
  EXPECT_EQ(test::read_file(file), line + "\n" + line + "\n");
  EXPECT_FALSE(read_records(file).torn);
}

TEST(Records, ACompressedFileIsReadAndNotWritten) {
  const TempFolder folder;
  const std::string file = folder.file("records.jsonl.xz");
  XzLineWriter writer(file);
  writer.write(to_line(record_with_details()));
  writer.write("{\"input\": 3}");
  writer.close();
  EXPECT_THAT([&] { (void)read_records(file); },
              testing::ThrowsMessage<base::UsageError>(HasSubstr("xz: line 2: not a record")));
  XzLineWriter again(file);
  again.write(to_line(record_with_details()));
  again.close();
  EXPECT_EQ(to_line(read_records(file).records.at(0)), to_line(record_with_details()));
  EXPECT_THAT([&] { RecordFile{file}; },
              testing::ThrowsMessage<base::UsageError>(HasSubstr("unpack it first")));
}

TEST(Records, ALineThatIsNoRecordIsNamed) {
  const TempFolder folder;
  const std::string file =
      folder.write("records.jsonl", to_line(record_with_details()) + "\n{\"input\": 3}\n");
  try {
    (void)read_records(file);
    FAIL();
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("records.jsonl: line 2: not a record"));
  }
  EXPECT_TRUE(read_records(folder.file("none")).records.empty());
}

}  // namespace
}  // namespace sluice::profiler
