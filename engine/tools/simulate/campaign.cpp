// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/campaign.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe::simulate {

namespace {

/// Seeds that a thread takes at once: enough that threads do not meet, few enough that progress shows.
constexpr std::uint64_t seeds_at_once = 64;

/// Tells failures apart: the sentence without its numbers and names of calls.
std::string kind_of(const std::string& fault) {
  std::string kind;
  for (const char c : fault.substr(0, fault.find('\n')))
    if (c < '0' || c > '9') kind += c;
  const std::size_t open = kind.find('('), close = kind.find(')');
  if (open != std::string::npos && close != std::string::npos && close > open) kind.erase(open, close - open);
  return kind.substr(0, 60);
}

class shrinker {
public:
  shrinker(const scenario& failing, plan_source& plans, const simulation_options& options, int most)
      : plans_(plans), options_(options), left_(most) {
    best_.what = failing;
    best_.fault = fault_of(failing);
  }

  shrunk run() {
    for (bool smaller = true; smaller && left_ > 0;) {
      smaller = false;
      for (const auto pass : {&shrinker::fewer_disturbances, &shrinker::fewer_items, &shrinker::fewer_ranks,
                              &shrinker::calmer, &shrinker::smaller_counts})
        smaller = (this->*pass)() || smaller;
    }
    simulation_options told = options_;
    told.trace = true;
    best_.trace = simulation(best_.what, plans_, told).run().trace;
    return std::move(best_);
  }

private:
  std::string fault_of(const scenario& s) {
    --left_;
    ++best_.attempts;
    return simulation(s, plans_, options_).run().fault;
  }

  /// Keeps `s` if it still fails alike.
  bool try_it(scenario s) {
    if (left_ <= 0) return false;
    std::string fault = fault_of(s);
    if (fault.empty() || kind_of(fault) != kind_of(best_.fault)) return false;
    best_.what = std::move(s);
    best_.fault = std::move(fault);
    return true;
  }

  /// With the number of each scenario that there is, the whole and its parts.
  template <class Pass>
  bool in_each(const Pass& pass) {
    bool any = false;
    for (std::size_t n = 0; n < best_.what.all().size(); ++n) any = pass(n) || any;
    return any;
  }

  bool fewer_disturbances() {
    return in_each([this](std::size_t n) {
      bool any = false;
      for (std::size_t i = 0; i < best_.what.all()[n]->disturbances.size();) {
        scenario s = best_.what;
        auto& list = s.all()[n]->disturbances;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        if (try_it(std::move(s))) any = true;
        else ++i;
      }
      return any;
    });
  }

  bool fewer_items() {
    return in_each([this](std::size_t n) {
      bool any = false;
      for (std::size_t i = best_.what.all()[n]->items.size(); i-- > 0;) {
        scenario s = best_.what;
        scenario& in = *s.all()[n];
        const int id = in.items[i].id;
        in.items.erase(in.items.begin() + static_cast<std::ptrdiff_t>(i));
        std::erase_if(in.disturbances, [&](const disturbance& x) { return x.item == id; });
        any = try_it(std::move(s)) || any;
      }
      return any;
    });
  }

  /// The last rank goes, or the last host, if no message and no root needs it.
  bool fewer_ranks() {
    if (best_.what.ranks < 2) return false;
    scenario s = best_.what;
    return leave_out_ranks(s, s.ranks - std::max(1, s.of_host), plans_) && try_it(std::move(s));
  }

  bool calmer() {
    bool any = false;
    const auto without = [&](auto change) {
      scenario s = best_.what;
      if (!change(s)) return;
      any = try_it(std::move(s)) || any;
    };
    without([](scenario& s) { return std::exchange(s.lose_percent, 0) != 0; });
    without([](scenario& s) { return std::exchange(s.twice_percent, 0) != 0; });
    without([](scenario& s) { return std::exchange(s.late_percent, 0) != 0; });
    without([](scenario& s) { return std::exchange(s.calm, 1) == 0; });
    without([](scenario& s) { return std::exchange(s.dma, false); });
    without([](scenario& s) { return std::exchange(s.nic.ends_after_ns, -1) >= 0; });
    without([](scenario& s) { return std::exchange(s.nic.loses, {}).any(); });
    without([](scenario& s) {
      process_loss& x = s.nic.loses;
      if (!x.any()) return false;
      x.goes_on_after_ns = -1;
      return std::exchange(x.what, process_loss::kind::killed) != process_loss::kind::killed;
    });
    without([](scenario& s) {
      s.nic.ends_after_ns = -1;
      return std::exchange(s.nic.nicd, false);
    });
    without([](scenario& s) { return !s.nic.nicd && !s.nic.loses.any() && std::exchange(s.nic.processes, 1) > 1; });
    without([](scenario& s) {
      bool any_lives = false;
      for (scenario* one : s.all()) any_lives = std::exchange(one->leave_late, false) || any_lives;
      return any_lives;
    });
    without([](scenario& s) { return std::exchange(s.first, std::uint64_t{0}) != 0; });
    return any;
  }

  bool smaller_counts() {
    return in_each([this](std::size_t n) { return smaller_counts_of(n); });
  }

  bool smaller_counts_of(std::size_t n) {
    bool any = false;
    for (std::size_t i = 0; i < best_.what.all()[n]->items.size(); ++i) {
      scenario whole = best_.what;
      scenario& s = *whole.all()[n];
      item& it = s.items[i];
      // Calls that are alike are planned alike, so only a call of its own may change.
      if (!it.what.uniform || it.what.count <= 1 || it.splits()) continue;
      it.what.count = 1;
      if (it.what.pieces > 0) partition_call(it.what, it.what.pieces, {});
      const auto alike = [&](const item& other) {
        return !other.pair && other.id != it.id && fingerprint(other.what, 0) == fingerprint(it.what, 0) &&
               !(other.how == it.how);
      };
      if (!it.pair && std::any_of(s.items.begin(), s.items.end(), alike)) continue;
      if (!it.pair && plans_.plan_for(call_of(it, s.ranks, it.what.root), s.ranks, it.how) == nullptr) continue;
      any = try_it(std::move(whole)) || any;
    }
    return any;
  }

  plan_source& plans_;
  simulation_options options_;
  int left_;
  shrunk best_;
};

}  // namespace

campaign_result run_campaign(const campaign_options& options) {
  campaign_result all;
  std::mutex mutex;
  std::atomic<std::uint64_t> next_batch{0};  // numbers of batches, since a seed may be the last that there is
  std::atomic<std::size_t> failing{0};
  std::atomic<bool> stop{false};
  const auto work = [&] {
    plan_source plans;
    while (!stop.load()) {
      const std::uint64_t batch = next_batch.fetch_add(1);
      if (batch > (options.last - options.first) / seeds_at_once) return;
      const std::uint64_t begin = options.first + batch * seeds_at_once;
      const std::uint64_t count = std::min(options.last - begin, seeds_at_once - 1) + 1;
      campaign_result mine;
      for (std::uint64_t seed = begin; seed - begin < count && !stop.load(); ++seed) {
        const simulation_result r = simulation(make_scenario(seed, options.limits, plans), plans, options.each).run();
        ++mine.seeds;
        mine.events += r.events;
        mine.performed += r.performed;
        mine.failed += r.failed;
        mine.mutations += r.mutations;
        if (r.ok()) continue;
        mine.failures.push_back({seed, r.fault});
        if (failing.fetch_add(1) + 1 == options.most_failures) stop.store(true);
      }
      const std::lock_guard lock(mutex);
      all.seeds += mine.seeds;
      all.events += mine.events;
      all.performed += mine.performed;
      all.failed += mine.failed;
      all.mutations += mine.mutations;
      all.failures.insert(all.failures.end(), mine.failures.begin(), mine.failures.end());
      if (options.progress && !options.progress(all.seeds, all.failures.size())) all.stopped = true, stop.store(true);
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int t = 1; t < options.threads; ++t) threads.emplace_back(work);
  } catch (const std::system_error&) {}  // fewer take longer
  work();
  for (std::thread& t : threads) t.join();
  std::sort(all.failures.begin(), all.failures.end(), [](const auto& a, const auto& b) { return a.seed < b.seed; });
  return all;
}

shrunk shrink(const scenario& failing, plan_source& plans, const simulation_options& options, int most_attempts) {
  return shrinker(failing, plans, options, most_attempts).run();
}

}  // namespace troupe::simulate
