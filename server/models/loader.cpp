#include "server/models/loader.hpp"

#include <sluice/sluice.h>

#include <set>

#include "base/error.hpp"
#include "engine/block_times.hpp"

namespace sluice::server {
namespace {

std::vector<std::uint64_t> measure(engine::ServedModel& model, std::size_t items) {
  constexpr int kTimed = 3;
  std::vector<std::uint64_t> times;
  for (const double ms : engine::time_blocks(model, items, kTimed)) {
    times.push_back(static_cast<std::uint64_t>(ms * 1e6));
  }
  return times;
}

/// Best effort does not run on the device while a model is measured. The first job also ends the
/// search for transparent jobs in this process, which would count the work of best-effort models as
/// jobs.
class MeasuringJob {
 public:
  explicit MeasuringJob(int gpu) : job_(gpu == kNoGpu ? 0 : sluice_job_begin_on(gpu, 0)) {}
  MeasuringJob(const MeasuringJob&) = delete;
  MeasuringJob& operator=(const MeasuringJob&) = delete;
  ~MeasuringJob() { sluice_job_end(job_); }

 private:
  const std::uint64_t job_;
};

}  // namespace

std::shared_ptr<Model> load_model(const ModelConfig& config, const MakeInstance& make,
                                  std::shared_ptr<Statistics> statistics) {
  auto model = std::make_shared<Model>(config, std::move(statistics));
  for (std::size_t i = 0; i < config.num_worker; ++i) {
    auto instance = std::make_unique<Model::Instance>();
    instance->served = make(config);
    model->instances.push_back(std::move(instance));
  }
  if (!config.batched && model->served().batched()) {
    throw base::UsageError("has a batch dimension; batch-size 0 is for models without one");
  }
  const MeasuringJob job(model->gpu());
  for (const std::size_t items : std::set{std::size_t{1}, config.batch_size}) {
    model->timing.measured(items, measure(model->served(), items));
    model->limits.measured(items, model->timing.whole_ns(items));
  }
  return model;
}

}  // namespace sluice::server
