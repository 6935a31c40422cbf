#include "runner/run/models_pid.hpp"

#include <gtest/gtest.h>

namespace sluice::runner {
namespace {

TEST(ModelsPid, IsTheListThatPublishedParsersRead) {
  EXPECT_EQ(models_pid_text(
                {{"fasterrcnn_resnet50_fpn_1440", 152380}, {"fasterrcnn_resnet50_fpn", 152381}}),
            "[\n"
            "    [\n"
            "        \"fasterrcnn_resnet50_fpn_1440\",\n"
            "        152380\n"
            "    ],\n"
            "    [\n"
            "        \"fasterrcnn_resnet50_fpn\",\n"
            "        152381\n"
            "    ]\n"
            "]");
}

}  // namespace
}  // namespace sluice::runner
