#include "fake_service.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sluice::test {

using engine::DataType;
using engine::Tensor;
using server::Code;
using server::Request;
using server::Response;
using server::Status;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr milliseconds kSlow{50};
constexpr milliseconds kDeaf{300};
/// A long fuzz run must not take all memory.
constexpr std::size_t kKept = 10000;
constexpr milliseconds kNever{std::chrono::hours(24)};

std::map<std::string, server::ModelMetadata> make_models() {
  const engine::TensorSpec any{"IN", DataType::kFp32, {-1}};
  std::map<std::string, server::ModelMetadata> models;
  for (const char* name : {"echo", "slow", "stuck", "refusing", "failing"}) {
    models[name] = {name, {"1"}, "sluice_fake", {any}, {any}, 8};
  }
  models["add"] = {"add",
                   {"1"},
                   "sluice_fake",
                   {{"INPUT0", DataType::kInt32, {16}}, {"INPUT1", DataType::kInt32, {16}}},
                   {{"OUTPUT0", DataType::kInt32, {16}}, {"OUTPUT1", DataType::kInt32, {16}}},
                   8};
  models["big"] = {"big", {"1"}, "sluice_fake", {any}, {{"OUT", DataType::kFp32, {1000000}}}, 1};
  return models;
}

const std::map<std::string, server::ModelMetadata>& models() {
  static const auto kModels = make_models();
  return kModels;
}

Response echo(const Request& request) { return {request.inputs, request.storage}; }

/// Keeps the data of its tensors.
Response owned(std::vector<Tensor> outputs, std::vector<std::vector<std::byte>> data) {
  auto storage = std::make_shared<std::vector<std::vector<std::byte>>>(std::move(data));
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].data = (*storage)[i];
  return {std::move(outputs), std::move(storage)};
}

Response add(const Request& request) {
  const auto& a = request.inputs[0];
  const auto& b = request.inputs[1];
  std::vector<std::vector<std::byte>> data(2, std::vector<std::byte>(a.data.size()));
  for (std::size_t i = 0; i < a.data.size(); i += sizeof(std::int32_t)) {
    std::int32_t x = 0;
    std::int32_t y = 0;
    std::memcpy(&x, a.data.data() + i, sizeof(x));
    std::memcpy(&y, b.data.data() + i, sizeof(y));
    const std::int32_t sum =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(x) + static_cast<std::uint32_t>(y));
    const std::int32_t difference =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(x) - static_cast<std::uint32_t>(y));
    std::memcpy(data[0].data() + i, &sum, sizeof(sum));
    std::memcpy(data[1].data() + i, &difference, sizeof(difference));
  }
  return owned(
      {{"OUTPUT0", DataType::kInt32, a.shape, {}}, {"OUTPUT1", DataType::kInt32, a.shape, {}}},
      std::move(data));
}

Response big() {
  std::vector<float> values(1000000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto bytes = std::as_bytes(std::span(values));
  return owned({{"OUT", DataType::kFp32, {1, 1000000}, {}}}, {{bytes.begin(), bytes.end()}});
}

/// What the request asks of a model that the core would check.
Status check(const Request& request) {
  const auto model = models().find(request.model);
  if (model == models().end())
    return {Code::kNotFound, std::string("no model ").append(request.model)};
  if (!request.version.empty() && request.version != "1") {
    return {Code::kNotFound, std::string("no version ").append(request.version)};
  }
  if (request.model != "add") return {};
  if (request.inputs.size() != 2 || request.inputs[0].type != DataType::kInt32 ||
      request.inputs[1].type != DataType::kInt32 ||
      request.inputs[0].data.size() != request.inputs[1].data.size()) {
    return {Code::kInvalidArgument, "add takes two INT32 inputs of the same size"};
  }
  return {};
}

Response only_wanted(Response response, const Request& request) {
  if (request.outputs.empty()) return response;
  std::erase_if(response.outputs, [&](const Tensor& output) {
    return std::find(request.outputs.begin(), request.outputs.end(), output.name) ==
           request.outputs.end();
  });
  return response;
}

}  // namespace

struct FakeService::Pending {
  Request request;
  server::Done done;
  steady_clock::time_point due;
};

class FakeService::Handle final : public server::Cancellation {
 public:
  Handle(FakeService& service, std::shared_ptr<Pending> pending)
      : service_(service), pending_(std::move(pending)) {}
  void cancel() override { service_.cancel(pending_); }

 private:
  FakeService& service_;
  std::shared_ptr<Pending> pending_;
};

FakeService::FakeService(std::uint64_t max_bytes)
    : memory_(max_bytes), answering_([this] { answer_slow_requests(); }) {}

FakeService::~FakeService() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

std::uint64_t FakeService::headers(const std::string& model, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (headers_.size() < kKept) headers_.push_back({model, bytes});
  open_.insert(next_id_);
  return next_id_++;
}

void FakeService::end_announcement(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (open_.erase(id) == 0) ++wrong_;
}

void FakeService::forget(std::uint64_t announced) { end_announcement(announced); }

std::shared_ptr<server::Cancellation> FakeService::infer(Request request, server::Done done) {
  // Inference of colserve is not announced.
  if (request.announced != 0) end_announcement(request.announced);
  {
    const std::lock_guard lock(mutex_);
    Request copy = request;
    copy.inputs.clear();
    copy.storage.reset();
    if (requests_.size() < kKept) requests_.push_back(std::move(copy));
  }
  Status status = check(request);
  if (status.ok() && !model_ready(request.model, "")) {
    status = {Code::kUnavailable, std::string("not loaded: ").append(request.model)};
  }
  if (request.id == "keeps the thread") static_cast<void>(load("stuck"));
  if (status.ok() && request.model == "slow") {
    const bool deaf = request.id == "deaf";
    auto handle = wait(std::move(request), std::move(done), deaf ? kDeaf : kSlow);
    return deaf ? nullptr : handle;
  }
  if (status.ok() && request.model == "stuck") {
    return wait(std::move(request), std::move(done), kNever);
  }
  if (status.ok() && request.model == "refusing") {
    status = {Code::kResourceExhausted, "the queue is full", 1500};
  }
  if (status.ok() && request.model == "failing") {
    const int code = std::atoi(request.id.c_str());
    const bool known = code > 0 && code <= static_cast<int>(Code::kInternal);
    status = {known ? static_cast<Code>(code) : Code::kInternal, "as asked"};
  }
  count(request.model, status);
  if (!status.ok()) {
    done(status, {});
  } else if (request.model == "add") {
    done(status, only_wanted(add(request), request));
  } else if (request.model == "big") {
    answer_big(done);
  } else {
    done(status, only_wanted(echo(request), request));
  }
  return nullptr;
}

void FakeService::answer_big(const server::Done& done) const {
  Response response = big();
  server::ByteBudget::Share share(memory_);
  if (!share.resize(response.outputs.front().data.size())) return done(server::memory_full(), {});
  response.storage = server::counted(std::move(response.storage), std::move(share));
  done({}, response);
}

std::shared_ptr<server::Cancellation> FakeService::wait(Request request, server::Done done,
                                                        milliseconds delay) {
  auto pending = std::make_shared<Pending>(
      Pending{std::move(request), std::move(done), steady_clock::now() + delay});
  const std::lock_guard lock(mutex_);
  pending_.insert(pending);
  changed_.notify_all();
  return std::make_shared<Handle>(*this, pending);
}

void FakeService::cancel(const std::shared_ptr<Pending>& pending) {
  {
    const std::lock_guard lock(mutex_);
    if (pending_.erase(pending) == 0) return;
    ++cancelled_;
  }
  pending->done({Code::kCancelled, "the client is gone"}, {});
}

void FakeService::answer_slow_requests() {
  std::unique_lock lock(mutex_);
  while (!ending_ || !pending_.empty()) {
    std::shared_ptr<Pending> next;
    for (const auto& pending : pending_) {
      if (ending_ || pending->due <= steady_clock::now()) next = pending;
    }
    if (!next) {
      changed_.wait_for(lock, milliseconds(5));
      continue;
    }
    pending_.erase(next);
    lock.unlock();
    count(next->request.model, {});
    next->done({}, echo(next->request));
    lock.lock();
  }
}

void FakeService::count(const std::string& model, const Status& status) {
  const std::lock_guard lock(mutex_);
  auto& entry = statistics_[model];
  auto& result = status.ok() ? entry.success : entry.fail;
  ++result.count;
  result.ns += 1000;
  if (!status.ok()) return;
  // Another number for each field.
  entry.last_inference_ms = 1'700'000'000'000;
  entry.inference_count += 2;
  ++entry.execution_count;
  std::uint64_t ns = 0;
  for (auto* part :
       {&entry.queue, &entry.compute_input, &entry.compute_infer, &entry.compute_output}) {
    ++part->count;
    ns += 100;
    part->ns += ns;
  }
}

void FakeService::refused(const std::string& model, const Status& status) {
  const std::lock_guard lock(mutex_);
  refusals_.push_back(model + " " + std::to_string(static_cast<int>(status.code)) + " " +
                      std::string(status.reason));
}

std::vector<std::string> FakeService::refusals() const {
  const std::lock_guard lock(mutex_);
  return refusals_;
}

bool FakeService::model_ready(const std::string& model, const std::string& version) const {
  return metadata(model, version).has_value();
}

std::optional<server::ModelMetadata> FakeService::metadata(const std::string& model,
                                                           const std::string& version) const {
  const auto found = models().find(model);
  if (found == models().end()) return std::nullopt;
  const auto& versions = found->second.versions;
  if (!version.empty() && std::ranges::count(versions, version) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (unloaded_.contains(model)) return std::nullopt;
  return found->second;
}

std::optional<std::vector<server::ModelStatistics>> FakeService::statistics(
    const std::string& model) const {
  if (!model.empty() && !models().contains(model)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::vector<server::ModelStatistics> found;
  for (const auto& [name, metadata] : models()) {
    if (!model.empty() && name != model) continue;
    const auto counted = statistics_.find(name);
    found.push_back(counted == statistics_.end() ? server::ModelStatistics{} : counted->second);
    found.back().name = name;
    found.back().version = metadata.versions.front();
  }
  return found;
}

std::vector<server::RepositoryEntry> FakeService::repository() const {
  std::vector<server::RepositoryEntry> entries;
  for (const auto& [name, metadata] : models()) {
    const bool ready = model_ready(name, "");
    entries.push_back({name, "1", ready ? "READY" : "UNAVAILABLE", ready ? "" : "unloaded"});
  }
  return entries;
}

Status FakeService::load(const std::string& model) {
  if (!models().contains(model)) return {Code::kNotFound, std::string("no model ").append(model)};
  std::unique_lock lock(mutex_);
  ++loading_;
  if (model == "stuck") changed_.wait(lock, [this] { return loads_end_ || ending_; });
  --loading_;
  unloaded_.erase(model);
  return {};
}

std::size_t FakeService::loading() const {
  const std::lock_guard lock(mutex_);
  return loading_;
}

void FakeService::end_loads() {
  const std::lock_guard lock(mutex_);
  loads_end_ = true;
  changed_.notify_all();
}

Status FakeService::unload(const std::string& model) {
  if (!models().contains(model)) return {Code::kNotFound, std::string("no model ").append(model)};
  const std::lock_guard lock(mutex_);
  unloaded_.insert(model);
  return {};
}

void FakeService::train(const server::TrainRequest& request, server::TrainDone done) {
  if (request.job == "waits") {
    const std::lock_guard lock(mutex_);
    waiting_jobs_.emplace_back(request.id, std::move(done));
    return;
  }
  done(request.job == "fails" ? Status{Code::kInternal, "exited with " + request.args} : Status{});
}

Status FakeService::stop_training(const std::string& job, const std::string& id) {
  if (job == "none") return {Code::kNotFound, "no such job"};
  std::vector<server::TrainDone> stopped;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_jobs_, [&](auto& each) {
      if (job != "waits" || (!id.empty() && each.first != id)) return false;
      stopped.push_back(std::move(each.second));
      return true;
    });
  }
  for (const auto& done : stopped) done({Code::kCancelled, "stopped"});
  return {};
}

std::size_t FakeService::training() const {
  const std::lock_guard lock(mutex_);
  return waiting_jobs_.size();
}

std::string FakeService::scheduler() const {
  const std::lock_guard lock(mutex_);
  return scheduler_;
}

Status FakeService::set_scheduler(const std::string& name) {
  if (name != "EDF" && name != "FIFO") {
    return {Code::kInvalidArgument, "no such scheduler; there are: EDF, FIFO"};
  }
  const std::lock_guard lock(mutex_);
  scheduler_ = name;
  return {};
}

nlohmann::json FakeService::status() const {
  return {{"scheduler", scheduler()},
          {"open_announcements", open_announcements()},
          {"reason", "found \xff in model.json"}};
}

std::string FakeService::metrics() const {
  return "# TYPE sluice_requests_total counter\nsluice_requests_total 1\n";
}

void FakeService::shut_down() {
  const std::lock_guard lock(mutex_);
  shutting_down_ = true;
}

std::vector<Request> FakeService::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<FakeService::Headers> FakeService::announced() const {
  const std::lock_guard lock(mutex_);
  return headers_;
}

std::size_t FakeService::open_announcements() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

std::size_t FakeService::wrong_announcements() const {
  const std::lock_guard lock(mutex_);
  return wrong_;
}

std::size_t FakeService::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

std::size_t FakeService::unanswered() const {
  const std::lock_guard lock(mutex_);
  return pending_.size();
}

bool FakeService::shutting_down() const {
  const std::lock_guard lock(mutex_);
  return shutting_down_;
}

}  // namespace sluice::test
