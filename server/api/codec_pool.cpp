#include "server/api/codec_pool.hpp"

#include <algorithm>
#include <utility>

namespace sluice::server::api {

unsigned CodecPool::default_threads() {
  // What a thread parses at the moment is outside of Service::memory(), so they are few.
  return std::clamp(std::thread::hardware_concurrency(), 2U, 5U);
}

CodecPool::CodecPool(unsigned threads) : most_huge_(std::max(threads, 2U) - 1) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

void CodecPool::post(std::size_t work, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.emplace(begun_ + work, Job{work, std::move(job)});
  }
  changed_.notify_one();
}

void CodecPool::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

std::multimap<std::uint64_t, CodecPool::Job>::iterator CodecPool::next() {
  if (huge_ < most_huge_) return jobs_.begin();
  return std::ranges::find_if(jobs_, [](const auto& job) { return job.second.work < kHuge; });
}

void CodecPool::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return next() != jobs_.end() || (ending_ && jobs_.empty()); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.extract(next()).mapped());
    begun_ += job.work;
    if (job.work >= kHuge) ++huge_;
    lock.unlock();
    job.run();
    // What the job held is freed before the lock is taken.
    job.run = nullptr;
    lock.lock();
    if (job.work >= kHuge) --huge_;
    changed_.notify_all();
  }
}

}  // namespace sluice::server::api
