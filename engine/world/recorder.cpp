// SPDX-License-Identifier: Apache-2.0
#include "engine/world/recorder.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <utility>

#include <spdlog/spdlog.h>

#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

constexpr std::size_t most_text = 64 * 1024;

std::int64_t cpu_ns(clockid_t of) {
  timespec t{};
  clock_gettime(of, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
std::int64_t thread_ns() { return cpu_ns(CLOCK_THREAD_CPUTIME_ID); }
std::int64_t process_ns() { return cpu_ns(CLOCK_PROCESS_CPUTIME_ID); }
std::int64_t steady_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds{1}; }

/// Counts what recording costs, in its scope: of the thread's CPU time, as is told of its process, too.
template <class Of>
class costly {
public:
  explicit costly(const Of& of) : of_(of) {}
  costly(const costly&) = delete;
  ~costly() { of_.add_cost(thread_ns() - since_); }

private:
  const Of& of_;
  const std::int64_t since_ = thread_ns();
};

/// When the thread left its last recorded call, or made the world.
struct thread_mark {
  std::uint64_t of = 0;  ///< the recorder's id; 0: none's
  std::int64_t ns = 0;   ///< of its CPU time
  std::int64_t steady = 0;
};
thread_local thread_mark left;

/// A call that the thread is in: what is over when it leaves.
struct visited {
  const recorded_communicator* of = nullptr;
  rank_t rank = 0;
  recorder::label calls{};
};
thread_local std::vector<visited> visits;

/// Which clock std::chrono::steady_clock is: processes that have the same can tell who was first.
std::string clock_name() {
  const std::string name = boot_id();
  return name.empty() ? "unknown" : name;
}
std::atomic<std::uint64_t> recorders_made{0};

/// Of the process, for incomplete_recording().
struct first_failure {
  std::mutex mutex;
  std::string text;
};
first_failure& failed() {
  static first_failure of;
  return of;
}

/// "run.goal" → "run-2.goal" for the second of the process, "run.3.goal" for process 3. A device has no neighbours.
std::string numbered(const std::string& file, bool of_job, int process) {
  if (std::error_code ignored; std::filesystem::is_other(file, ignored)) return file;
  static std::mutex mutex;
  static std::map<std::string, int> worlds;
  const std::lock_guard lock(mutex);
  const int world = ++worlds[file];
  std::filesystem::path path{file};
  std::string name = path.stem().string();
  if (world > 1) name += "-" + std::to_string(world);
  if (of_job) name += "." + std::to_string(process);
  return path.replace_filename(name + path.extension().string()).string();
}

}  // namespace

recorder::recorder(const std::string& file, int ranks, bool of_job, int process, std::shared_ptr<spdlog::logger> log)
    : id_(++recorders_made),
      file_(numbered(file, of_job, process)),
      log_(std::move(log)),
      ranks_(static_cast<std::size_t>(ranks)),
      out_(std::fopen(file_.c_str(), "w")),
      born_ns_(steady_ns()),
      born_cpu_ns_(process_ns()) {
  if (!out_)
    throw error(errc::bad_config,
                "engine.record: " + file_ + " cannot be written: " + std::generic_category().message(errno));
  left = {id_, thread_ns(), born_ns_};
}

std::int64_t recorder::computed(bool in_run) const {
  if (!open_.load(std::memory_order_relaxed)) return 0;
  const std::int64_t now = thread_ns();
  if (left.of == id_) return now - left.ns;
  // A thread that the world was made for has done nothing else; of any other nobody knows what it did before.
  return in_run ? std::min(now, steady_ns() - born_ns_) : 0;
}

void recorder::mark() const {
  const std::int64_t since = thread_ns();
  if (!visits.empty()) {
    visited call = visits.back();
    visits.pop_back();
    if (call.of != nullptr) call.of->waited(call.rank, call.calls);
  }
  const std::int64_t now = thread_ns();
  add_cost(now - since);
  left = {id_, now, steady_ns()};
}

std::uint64_t recorder::add(rank_data& of, const std::string& operation) {
  const std::string label = "l" + std::to_string(++of.count);
  of.text += label + ": " + operation + "\n";
  for (const std::uint64_t earlier : of.wait_for) of.text += label + " requires l" + std::to_string(earlier) + "\n";
  return of.count;
}

void recorder::spill(rank_data& of) {
  if (of.text.size() < most_text) return;
  if (!of.spilt) of.spilt.reset(std::tmpfile());
  if (!of.spilt || std::fwrite(of.text.data(), 1, of.text.size(), of.spilt.get()) != of.text.size()) {
    report("there is no room for temporary files");
    if (of.spilt) std::rewind(of.spilt.get());
  }
  of.text.clear();
}

void recorder::report(const std::string& why) const noexcept {
  try {
    const std::string text = "engine.record: " + file_ + " is not complete: " + why;
    log_->error("{}", text);
    first_failure& of = failed();
    const std::lock_guard lock(of.mutex);
    if (of.text.empty()) of.text = text;
  } catch (...) {}  // no memory for a sentence
}

std::string incomplete_recording() {
  first_failure& of = failed();
  const std::lock_guard lock(of.mutex);
  return of.text;
}

std::string recorder::name_for(const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  // Ranks and how many with the same came before: the same in all processes, as the ranks make them in one order.
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const int m : members) hash = (hash ^ static_cast<std::uint64_t>(m)) * 0x100000001b3u;
  std::string name = "c" + std::to_string(hash) + "_" + std::to_string(++times_[members]);
  communicators_.emplace_back(name, members);
  return name;
}

void recorder::finish() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!out_) return;
    open_ = false;
    file_ptr out = std::move(out_);
    const auto put = [&](const std::string& text) { std::fwrite(text.data(), 1, text.size(), out.get()); };
    const std::int64_t lived = steady_ns() - born_ns_;
    put("// recorded by troupe: a world of " + std::to_string(lived / 1000) +
        " us; replay it with `troupe replay`\n//@ clock " + clock_name() + " " + std::to_string(born_ns_) +
        "\n//@ cpu " + std::to_string(std::max<std::int64_t>(0, process_ns() - born_cpu_ns_)) + " of " +
        std::to_string(lived) + " recording " + std::to_string(cost_ns_.load(std::memory_order_relaxed)) +
        "\nnum_ranks " + std::to_string(ranks_.size()) + "\n");
    for (const auto& [name, members] : communicators_) {
      std::string line = "comm " + name + " {";
      for (const int m : members) line += " " + std::to_string(m);
      put(line + " }\n");
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      rank_data& of = ranks_[r];
      const std::lock_guard also(of.mutex);
      if (of.count == 0) continue;
      put("\nrank " + std::to_string(r) + " {\n");
      if (of.spilt) {
        std::rewind(of.spilt.get());
        char block[1 << 14];
        for (std::size_t n; (n = std::fread(block, 1, sizeof block, of.spilt.get())) > 0;)
          std::fwrite(block, 1, n, out.get());
        of.spilt.reset();
      }
      put(of.text + "}\n");
      of.text.clear();
    }
    const bool written = std::fflush(out.get()) == 0 && std::ferror(out.get()) == 0;
    const int why = errno;
    // A file of another host may tell only when it is closed.
    const bool closed = std::fclose(out.release()) == 0;
    if (!written || !closed) report(std::generic_category().message(written ? errno : why));
  } catch (const std::exception& e) {
    report(e.what());
  }
}

// -- communicators ------------------------------------------------------------------------------------------------------

recorded_communicator::recorded_communicator(std::shared_ptr<recorder> in) : in_(std::move(in)) {
  members_.resize(in_->ranks_.size());
  std::iota(members_.begin(), members_.end(), 0);
}
recorded_communicator::recorded_communicator(std::shared_ptr<recorder> in, std::string name, std::vector<int> members)
    : in_(std::move(in)), name_(std::move(name)), members_(std::move(members)) {}

std::shared_ptr<recorded_communicator> recorded_communicator::part(std::span<const rank_t> members) const {
  std::vector<int> of_world;
  for (const rank_t r : members) of_world.push_back(members_[static_cast<std::size_t>(r)]);
  std::string name = in_->name_for(of_world);
  return std::shared_ptr<recorded_communicator>{new recorded_communicator{in_, std::move(name), std::move(of_world)}};
}

recorder::rank_data& recorded_communicator::rank_of(rank_t rank) const {
  return in_->ranks_[static_cast<std::size_t>(members_[static_cast<std::size_t>(rank)])];
}

void recorded_communicator::compute(rank_t rank, bool in_run) const {
  const std::int64_t ns = in_->computed(in_run);
  if (ns <= 0) return;
  const std::int64_t now = steady_ns(), since = left.of == in_->id_ ? left.steady : now - ns;
  recorder::rank_data& of = rank_of(rank);
  const std::lock_guard lock(of.mutex);
  const std::uint64_t number = in_->add(of, "calc " + std::to_string(ns));
  of.wait_for = {number};
  of.text += "//@ l" + std::to_string(number) + " from " + std::to_string(since - in_->born_ns_) + " to " +
             std::to_string(now - in_->born_ns_) + "\n";
  in_->spill(of);
}

std::string recorded_communicator::text_of(const call_description& of) const {
  const call& c = of.what;
  if (of.pair)
    return (of.sending ? "send " : "recv ") + std::to_string(c.count * size_of(c.type)) +
           (of.sending ? "b to " : "b from ") + std::to_string(members_[static_cast<std::size_t>(of.peer)]) + " tag " +
           std::to_string(of.options.tag);
  std::string text = "coll " + std::string{troupe::name(c.what)};
  const bool v_form = !c.uniform && !c.outcome_of;
  if (v_form) text += "_v";
  if (moves_data(c.what)) {
    text += " ";
    if (!v_form) text += std::to_string(c.count);
    for (std::size_t i = 0; v_form && i < c.counts.size(); ++i)
      text += (i > 0 ? "," : "") + std::to_string(c.counts[i]);
    text += " " + std::string{troupe::name(c.type)};
  }
  // A user's function costs what it costs; a sum stands for it.
  if (is_reduction(c.what))
    text += " " + std::string{c.reduction.kind == op_kind::user ? "sum" : troupe::name(c.reduction.kind)};
  if (has_root(c.what)) text += " root " + std::to_string(c.root);
  return name_.empty() ? text : text + " comm " + name_;
}

recorder::label recorded_communicator::begin(rank_t rank, std::initializer_list<const call_description*> calls,
                                             bool blocking) const {
  recorder::rank_data& of = rank_of(rank);
  const std::lock_guard lock(of.mutex);
  recorder::label made;
  if (!in_->open_.load(std::memory_order_relaxed)) return made;
  for (const call_description* c : calls) {
    if (c->pair && c->peer == proc_null) continue;
    const std::uint64_t number = in_->add(of, text_of(*c));
    if (made.count++ == 0) made.first = number;
    of.text += "//@ l" + std::to_string(number) + " from " + std::to_string(steady_ns() - in_->born_ns_) + "\n";
  }
  if (blocking && made.count > 0) {
    of.wait_for.clear();
    for (std::uint64_t i = 0; i < made.count; ++i) of.wait_for.push_back(made.first + i);
  }
  in_->spill(of);
  return made;
}

void recorded_communicator::waited(rank_t rank, recorder::label& of) const {
  recorder::rank_data& mine = rank_of(rank);
  const std::int64_t now = steady_ns() - in_->born_ns_;
  const std::lock_guard lock(mine.mutex);
  const bool written = !in_->open_.load(std::memory_order_relaxed);
  for (std::uint64_t i = 0; i < of.count && !written; ++i) {
    mine.text += "//@ l" + std::to_string(of.first + i) + " to " + std::to_string(now) + "\n";
    if (std::ranges::find(mine.wait_for, of.first + i) == mine.wait_for.end()) mine.wait_for.push_back(of.first + i);
  }
  of.count = 0;
}

// -- calls --------------------------------------------------------------------------------------------------------------

namespace {

bool in_run(const communicator_state& of) { return of.run && actors::runtime::is_in_run(*of.run); }

}  // namespace

recorded_visit::recorded_visit(const communicator_state& of, rank_t rank) : of_(*of.record) {
  const costly cost{of_};
  of_.compute(rank, in_run(of));
  visits.emplace_back();
}

recorded_call::recorded_call(const communicator_state& of, rank_t rank,
                             std::initializer_list<const call_description*> calls)
    : of_(*of.record) {
  const costly cost{of_};
  of_.compute(rank, in_run(of));
  visits.emplace_back();
  std::vector<call_description> checked;
  checked.reserve(calls.size());
  try {
    for (const call_description* c : calls) check_call(checked.emplace_back(*c), rank, of.ranks);
  } catch (const error&) {
    return;  // the call itself will say so; it is none
  }
  const recorder::label begun =
      checked.size() == 1 ? of_.begin(rank, {&checked[0]}, true) : of_.begin(rank, {&checked[0], &checked[1]}, true);
  visits.back() = {&of_, rank, begun};
}

void request::state::note_begin() {
  const recorded_visit inside{*of, rank};
  const costly cost{*of->record};
  const auto described = [](const actors::operation& op) {
    call_description d;
    d.what = op.what;
    d.pair = op.peer >= 0;
    d.peer = op.peer;
    d.sending = op.sending;
    d.options.tag = op.tag;
    return d;
  };
  const call_description first = described(*what);
  if (pair == nullptr) {
    recorded = of->record->begin(rank, {&first}, false);
    return;
  }
  const call_description second = described(pair->out);
  recorded = of->record->begin(rank, {&first, &second}, false);
}

}  // namespace troupe
