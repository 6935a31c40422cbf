#include "controller/log.hpp"

#include <spdlog/async.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <semaphore>
#include <thread>

namespace sluice::controller {
namespace {

constexpr std::size_t kQueuedLines = 1024;
constexpr std::chrono::milliseconds kFlushTime{300};
constexpr const char* kPlainLogger = "sluice.announce";

void register_logger(const char* name, const char* pattern, spdlog::level::level_enum level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::async_logger>(
      name, std::move(sink), spdlog::thread_pool(), spdlog::async_overflow_policy::overrun_oldest);
  logger->set_pattern(pattern);
  logger->set_level(level);
  logger->flush_on(spdlog::level::trace);
  spdlog::register_logger(logger);
}

}  // namespace

void start_log(const std::string& level) {
  spdlog::init_thread_pool(kQueuedLines, 1);
  register_logger("sluice", "%Y-%m-%d %H:%M:%S.%e %l: %v", spdlog::level::from_str(level));
  register_logger(kPlainLogger, "%v", spdlog::level::info);
  spdlog::set_default_logger(spdlog::get("sluice"));
}

void announce(const std::string& line) { spdlog::get(kPlainLogger)->info(line); }

void flush_log_and_exit(int status) {
  static std::binary_semaphore flushed{0};
  std::thread([] {
    spdlog::shutdown();
    flushed.release();
  }).detach();
  static_cast<void>(flushed.try_acquire_for(kFlushTime));
  std::_Exit(status);
}

}  // namespace sluice::controller
