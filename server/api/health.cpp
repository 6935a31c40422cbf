#include "server/api/health.hpp"

#include <optional>
#include <utility>

#include "server/api/health.pb.h"
#include "server/api/kserve.grpc.pb.h"
#include "server/api/message.hpp"

namespace sluice::server::api {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

grpc::ByteBuffer answer(int status) {
  HealthCheckResponse response;
  response.set_status(static_cast<HealthCheckResponse::ServingStatus>(status));
  return serialized(response);
}

void finish_without_message(GenericCall& call) {
  call.finish({grpc::StatusCode::INVALID_ARGUMENT, "the call has no HealthCheckRequest"});
}

}  // namespace

class Health::Check final : public GenericCall::Handler {
 public:
  Check(const Health& health, GenericCall& call) : health_(health), call_(call) {}

 private:
  void has_read(bool ok) override {
    HealthCheckRequest request;
    if (!ok || !parse(call_.message(), request)) return finish_without_message(call_);
    const int status = health_.status_of(request.service());
    if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
      return call_.finish({grpc::StatusCode::NOT_FOUND, "unknown service"});
    }
    call_.message() = answer(status);
    call_.write_and_finish();
  }

  const Health& health_;
  GenericCall& call_;
};

/// Writes the status whenever it has changed, until the client leaves.
class Health::Watch final : public GenericCall::Handler {
 public:
  Watch(Health& health, GenericCall& call) : health_(health), call_(call) {}
  ~Watch() override {
    const std::lock_guard lock(health_.mutex_);
    health_.watches_.erase(this);
  }

  /// With the mutex.
  void look() {
    if (busy_) return;
    if (left_) {
      busy_ = true;
      return call_.finish(grpc::Status::CANCELLED);
    }
    const int status = health_.status_of(service_);
    if (said_ == status) return;
    busy_ = true;
    said_ = status;
    call_.message() = answer(status);
    call_.write();
  }

 private:
  class Leaving final : public Cancellation {
   public:
    explicit Leaving(Watch& watch) : watch_(watch) {}
    void cancel() override {
      const std::lock_guard lock(watch_.health_.mutex_);
      watch_.left_ = true;
      watch_.look();
    }

   private:
    Watch& watch_;
  };

  void has_read(bool ok) override {
    HealthCheckRequest request;
    if (!ok || !parse(call_.message(), request)) return finish_without_message(call_);
    {
      const std::lock_guard lock(health_.mutex_);
      service_ = request.service();
      health_.watches_.insert(this);
      look();
    }
    call_.cancels(std::make_shared<Leaving>(*this));
  }

  void has_written() override {
    const std::lock_guard lock(health_.mutex_);
    busy_ = false;
    look();
  }

  Health& health_;
  GenericCall& call_;
  std::string service_;
  std::optional<int> said_;
  bool busy_ = false;  ///< Writes, or has finished.
  bool left_ = false;
};

Health::Health(const Service& service)
    : service_(service),
      ready_(service.ready()),
      thread_([this](const std::stop_token& stop) { look(stop); }) {}

std::unique_ptr<GenericCall::Handler> Health::check(GenericCall& call) {
  return std::make_unique<Check>(*this, call);
}

std::unique_ptr<GenericCall::Handler> Health::watch(GenericCall& call) {
  return std::make_unique<Watch>(*this, call);
}

int Health::status_of(const std::string& service) const {
  if (!service.empty() && service != inference::GRPCInferenceService::service_full_name()) {
    return HealthCheckResponse::SERVICE_UNKNOWN;
  }
  return ready_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void Health::look(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kPause{50};
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const bool ready = service_.ready();
    if (ready_.exchange(ready) != ready) {
      for (Watch* const watch : watches_) watch->look();
    }
    changed_.wait_for(lock, stop, kPause, [] { return false; });
  }
}

}  // namespace sluice::server::api
