#include "server/api/generic_calls.hpp"

#include <algorithm>
#include <utility>

#include "server/api/grpc_status.hpp"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

/// While a call has a message of this size, others should not wait for its thread.
constexpr std::size_t kLarge = std::size_t{64} << 10;

/// A slow reader gets a second for each 64 KiB, as over HTTP.
std::chrono::milliseconds write_limit(std::chrono::milliseconds least, std::size_t bytes) {
  return least + std::chrono::milliseconds(bytes * 1000 / (64 << 10));
}

}  // namespace

GenericCall::GenericCall(GenericCalls& all)
    : all_(all), reading_(all.time_limits_), writing_(all.time_limits_) {
  ++all.open_;
  context_.AsyncNotifyWhenDone(&closed_);
  all.calls_.RequestCall(&context_, &stream_, all.queue_.get(), all.queue_.get(), &next_);
}

GenericCall::~GenericCall() {
  if (large_) all_.count_large(-1);
  if (--all_.open_ == 0) all_.open_.notify_all();
}

void GenericCall::arrived(bool ok) {
  if (!ok) {
    delete this;  // The server has been shut down. closed_ does not come back.
    return;
  }
  new GenericCall(all_);
  const auto method = all_.methods_.find(context_.method());
  const bool known = method != all_.methods_.end();
  Status status = check_access(all_.access_, known ? method->second.right : Right::kUse, context_);
  if (!status.ok() && known && method->second.inference) {
    all_.service_.refused("", with_reason(status, "token"));
  }
  if (status.ok() && !known) {
    status = {Code::kUnimplemented, context_.method() + " is not served"};
  }
  if (!status.ok()) return finish(to_grpc(status, context_));
  handler_ = method->second.handler(*this);
  read();
}

void GenericCall::read() {
  reading_.start(context_, all_.limits_.read);
  next_.done = &GenericCall::has_read;
  stream_.Read(&message_, &next_);
}

void GenericCall::has_read(bool ok) {
  reading_.stop();
  large_ = ok && message_.Length() >= kLarge;
  if (large_) all_.count_large(1);
  ++uses_;  // Other threads may end the call before its handler returns.
  const std::size_t work = ok ? handler_->work(message_) : 0;
  if (work < CodecPool::kLarge) return handle(ok);
  all_.pool_.post(work, [this] { handle(!cancel_.cancelled()); });
}

void GenericCall::handle(bool ok) {
  handler_->has_read(ok);
  release();
}

void GenericCall::write() {
  next_.done = &GenericCall::has_written;
  stream_.Write(message_, &next_);
}

void GenericCall::has_written(bool /*ok*/) {
  ++uses_;
  handler_->has_written();
  release();
}

void GenericCall::write_and_finish() {
  writing_.start(context_, write_limit(all_.limits_.write, message_.Length()));
  next_.done = &GenericCall::has_finished;
  stream_.WriteAndFinish(message_, grpc::WriteOptions(), grpc::Status::OK, &next_);
}

void GenericCall::finish(const grpc::Status& status) {
  next_.done = &GenericCall::has_finished;
  stream_.Finish(status, &next_);
}

void GenericCall::has_finished(bool /*ok*/) { release(); }

void GenericCall::closed(bool /*ok*/) {
  if (context_.IsCancelled()) cancel_.cancel();
  release();
}

void GenericCall::release() {
  if (--uses_ == 0) delete this;
}

void GenericCalls::add_to(grpc::ServerBuilder& builder) {
  builder.RegisterAsyncGenericService(&calls_);
  queue_ = builder.AddCompletionQueue();
}

void GenericCalls::start() {
  new GenericCall(*this);
  // As many as gRPC would take for its callback API. All but one wait.
  const unsigned most = std::clamp(std::thread::hardware_concurrency() / 2, 2U, 16U);
  for (unsigned i = 0; i < most; ++i) threads_.emplace_back([this] { serve(); });
}

void GenericCalls::end() {
  for (int open = open_; open > 0; open = open_) open_.wait(open);
  queue_->Shutdown();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  threads_.clear();
  pool_.end();
}

void GenericCalls::serve() {
  void* tag = nullptr;
  bool ok = false;
  bool polls = false;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (polls && polling_ > 1 + large_) {
        --polling_;
        polls = false;
      }
      if (!polls) {
        changed_.wait(lock, [this] { return ending_ || polling_ < 1 + large_; });
        ++polling_;
        polls = true;
      }
    }
    if (!queue_->Next(&tag, &ok)) return;
    const auto& part = *static_cast<const GenericCall::Tag*>(tag);
    (part.call->*part.done)(ok);
  }
}

void GenericCalls::count_large(int more) {
  {
    const std::lock_guard lock(mutex_);
    large_ += more;
  }
  if (more > 0) changed_.notify_one();
}

}  // namespace sluice::server::api
