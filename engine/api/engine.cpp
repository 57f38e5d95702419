// SPDX-License-Identifier: Apache-2.0
#include "engine/api/engine.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "actors/caf/job_links.hpp"
#include "actors/ports/link/core_share.hpp"
#include "actors/waiting/policy.hpp"
#include "engine/config/configuration.hpp"
#include "engine/experts/lasting_memory.hpp"
#include "engine/planning/nccl_selection.hpp"
#include "engine/planning/option_bounds.hpp"
#include "engine/world/communicator_state.hpp"
#include "engine/world/join.hpp"
#include "memory/error.hpp"
#include "memory/exception_text.hpp"
#include "protocols/choreographies/peer_order.hpp"
#include "protocols/chunk.hpp"
#include "topology/layout/placement.hpp"
#include "topology/reach.hpp"

namespace troupe {

namespace {

void check_range(const char* what, double value, double least, double most) {
  if (value >= least && value <= most) return;
  const auto text = [](double v) {
    std::string s = std::to_string(v);
    s.erase(s.find_last_not_of('0') + 1);
    if (!s.empty() && s.back() == '.') s.pop_back();
    return s;
  };
  throw error(errc::bad_config,
              std::string{what} + " is " + text(value) + " but must be from " + text(least) + " to " + text(most));
}

/// @param last of its enumerators
template <class Enum>
void check_enumerator(const char* what, Enum value, Enum last) {
  if (value > last)
    throw error(errc::bad_config, std::string{what} + " is " + std::to_string(static_cast<unsigned>(value)) +
                                      ", which is no value of its type");
}

/// @param choices "a|b|c"
void check_choice(const char* what, const std::string& value, std::string_view choices) {
  if (is_one_of(value, choices)) return;
  throw error(errc::bad_config, std::string{what} + " is \"" + value + "\" but must be " + choices_in_words(choices));
}

/// Sends of a pair with one tag have 2⁴⁷ numbers (chunk.hpp), of which as many are left as it takes 19 hours to use up at a thousand million a second.
constexpr std::uint64_t most_first_operation = std::uint64_t{1} << (bits_below_tag - 1);

engine_options checked(engine_options o) {
  check_range("credits", o.credits, 1, most_credits);
  check_range("channels", o.channels, 0, most_channels_wanted);
  check_range("slices_per_step", o.slices_per_step, 0, most_credits);
  check_range("streams", o.streams, 1, most_streams);
  check_range("workers", o.workers, -1, 1024);
  check_range("spin", o.spin, 0, 1'000'000);
  check_range("nic_ports", o.nic_ports, 1, 64);
  for (const std::string& fault : {card_size_fault("card.l0", o.card.l0, card_sizes::most_l0),
                                   card_size_fault("card.l2", o.card.l2, card_sizes::most_l2)})
    if (!fault.empty()) throw error(errc::bad_config, fault);
  check_range("lanes", o.lanes, 1, actors::most_connections);
  if (o.first_operation > most_first_operation)
    throw error(errc::bad_config, "first_operation is " + std::to_string(o.first_operation) +
                                      " but must be at most 2^46, so that sends have numbers left");
  for (const double p : {o.faults.drop, o.faults.duplicate, o.faults.reorder, o.faults.delay})
    check_range("a fault's probability", p, 0, 1);
  if (o.deadline && o.deadline->count() <= 0)
    throw error(errc::bad_config, "deadline must be positive, or unset for none");
  check_enumerator("level", o.level, determinism::topology_stable);
  check_enumerator("agreement", o.agreement, agreement_time::eager);
  check_enumerator("hccl.device", o.hccl.device, hccl_device::ascend_310p);
  check_enumerator("hccl.level0", o.hccl.level0, hccl_level::hd);
  check_enumerator("hccl.level1", o.hccl.level1, hccl_level::hd);
  check_enumerator("nccl.version", o.nccl.version, nccl_version::v2_23);
  check_enumerator("nccl.device", o.nccl.device, nccl_device::hopper);
  check_enumerator("nccl.host", o.nccl.host, nccl_host::power);
  check_choice("log_level", o.log_level, "trace|debug|info|warn|error|off");
  check_choice("protocol", o.protocol, wanted_protocols);
  check_choice("offload", o.offload, "never|auto|always");
  check_choice("stages", o.stages, "measured|always|never");
  check_choice("transport", o.transport, "sockets|ucx");
  if (o.nic != "process" && o.nic != "host" && !o.nic.starts_with("unix:@"))
    throw error(errc::bad_config, "nic is \"" + o.nic + "\" but must be \"process\", \"host\" or \"unix:@name\"");
  if (o.offload != "never" && o.faults.any())
    throw error(errc::bad_config,
                "offload is \"" + o.offload +
                    "\" but would do nothing: the faults that are asked for happen to messages between actors");
  return o;
}

actors::runtime_options runtime_part(const engine_options& o, std::shared_ptr<spdlog::logger> log) {
  actors::runtime_options r;
  r.log = std::move(log);
  r.workers = o.workers;
  r.spin = o.spin;
  r.trace_routes = o.trace_routes;
  r.card = o.card;
  r.first_operation = o.first_operation;
  r.offloads = o.offload != "never";
  const fault_options& f = o.faults;
  r.faults = {f.seed, f.drop, f.duplicate, f.reorder, f.delay, f.longest_delay, f.kill_after, f.kill_rank};
  return r;
}

/// Without places it is one rank, and which switches reduce.
layout machine_layout_of(const std::string& text) {
  if (!layout::leaves_places_open(text)) return layout::parse(text);
  layout any = layout::flat(1);
  any.reduces = layout::reduction_of(text);
  return any;
}

}  // namespace

// -- core -------------------------------------------------------------------------------------------------------------

engine_core::engine_core(engine_options o)
    : options(checked(std::move(o))),
      offload(offload_wish_of(options)),
      machine_layout(machine_layout_of(options.layout)),
      has_layout(!layout::leaves_places_open(options.layout)),
      log(make_log(options.log_level)),
      lasting(std::make_shared<lasting_memory>(memory)),
      plans(options),
      runtime(std::make_unique<actors::runtime>(runtime_part(options, log),
                                                machine{machine_layout, {options.nic_ports, true}})) {}

engine_core::~engine_core() { close(); }

void engine_core::will_wait(const std::shared_ptr<communicator_state>& which) {
  const std::lock_guard lock(waiting_mutex);
  if (closing) refuse_closed();
  std::erase_if(waiting, [&](const auto& one) { return one.expired() || one.lock() == which; });
  waiting.push_back(which);
}

void engine_core::adopt(const std::shared_ptr<engine_core>& grown) {
  const std::lock_guard lock(waiting_mutex);
  if (closing) refuse_closed();
  grown_.push_back(grown);
}

void engine_core::end_unused() {
  std::vector<std::shared_ptr<engine_core>> unused;
  {
    const std::lock_guard lock(waiting_mutex);
    for (auto& each : grown_)
      if (each.use_count() == 1 && each->runtime->job()->wait_for_others(std::chrono::steady_clock::now()))
        unused.push_back(std::move(each));
    std::erase(grown_, nullptr);
  }
  for (const auto& each : unused) each->close();
}

/// Processes that wait for this one in one of its jobs hear of the end before the end of another job is waited for.
void engine_core::close() {
  begin_close();
  std::vector<std::shared_ptr<engine_core>> grown;
  {
    const std::lock_guard lock(waiting_mutex);
    grown.swap(grown_);
  }
  for (const auto& each : grown) each->begin_close();
  for (const auto& each : grown) each->end_close();
  end_close();
}

void engine_core::begin_close() {
  door.shut();
  if (!runtime) return;
  std::vector<std::weak_ptr<communicator_state>> shrinking;
  {
    const std::lock_guard lock(waiting_mutex);
    closing = true;
    shrinking.swap(waiting);
  }
  for (const auto& one : shrinking)
    if (const auto of = one.lock())
      of->shrunk.close(of, make_failure(errc::engine_closed, "the engine was destroyed with this shrink under way"));
  if (runtime->job() != nullptr)
    runtime->abort_those_in_use(
        make_failure(errc::engine_closed, "the engine of a process was destroyed with this communicator in use"));
}

void engine_core::end_close() {
  if (!runtime) return;
  if (runtime->job() != nullptr) runtime->wait_for_others();
  runtime->abort_all(make_failure(errc::engine_closed, "the engine was destroyed with this operation under way"));
  door.wait_until_empty();  // whoever waits for an operation is released by its failure
  if (runtime->job() != nullptr) runtime->job()->end_shrinks();  // whose answers come to communicators of this engine
  runtime.reset();
  const std::lock_guard lock(waiting_mutex);
  for (const auto& one : recorders)
    if (const auto alive = one.lock()) alive->finish();
}

namespace {
/// The processes share no memory though they are on one host: as if each were alone on its own.
void live_apart(layout& placement) {
  for (residence& r : placement.homes) {
    if (r.computer < 0) r.computer = r.host;
    r.host = r.process;
  }
}
}  // namespace

/// Of a communicator of several hosts: the ranks of each share a board.
void engine_core::meet_on_host(actors::job_part& part, const layout& placement) const {
  const int many = ranks_of_each_host(placement);
  if (many == 0 || !plans.has_boards(layout_of_host(placement, many))) return;
  part.of_host = many;
  const auto mine = std::ranges::find(part.process_of, runtime->job()->here());
  const auto first = (mine - part.process_of.begin()) / many * many;
  const std::span<const std::uint32_t> here{part.process_of.data() + first, static_cast<std::size_t>(many)};
  if (std::ranges::all_of(here, [&](std::uint32_t process) { return process == here.front(); })) return;
  part.boards_in = runtime->job()->boards_for(part.id, here, actors::job_links::boards_of::some_ranks);
  if (part.boards_in == nullptr)
    throw error(errc::out_of_memory, "there is no room for boards in the memory that the processes of this host share");
}

std::shared_ptr<communicator_state> engine_core::found(std::string name, layout placement,
                                                       std::vector<int> machine_ranks,
                                                       std::shared_ptr<actors::run_threads> run,
                                                       const actors::job_part* job,
                                                       std::shared_ptr<recorded_communicator> record) {
  auto s = std::make_shared<communicator_state>(waiting_for(placement.size(), runtime->cores()).spin);
  s->core = shared_from_this();
  s->name = std::move(name);
  s->ranks = placement.size();
  s->placement = std::move(placement);
  if (options.planner == "nccl") s->meeting = std::make_shared<choreographies::peer_order>(s->placement);
  s->machine_ranks = machine_ranks;
  s->record = std::move(record);
  s->run = std::move(run);
  s->callers = std::make_unique<communicator_state::caller[]>(static_cast<std::size_t>(s->ranks));
  if (job != nullptr) {
    s->id = job->id;
    s->process_of = job->process_of;
  }
  if (!s->record && !options.record.empty()) {
    auto whole = std::make_shared<recorder>(options.record, s->ranks, job != nullptr,
                                            job != nullptr ? static_cast<int>(runtime->job()->here()) : 0, log);
    const std::lock_guard lock(waiting_mutex);
    std::erase_if(recorders, [](const auto& one) { return one.expired(); });
    recorders.push_back(whole);
    s->record = std::make_shared<recorded_communicator>(std::move(whole));
  }
  const int least_channels = options.planner == "nccl" ? most_channels_of(options.nccl) : 1;
  const int channels =
      options.channels > 0
          ? options.channels
          : std::max(least_channels, job != nullptr ? channels_of_job : std::clamp(runtime->cores() / s->ranks, 1, 16));
  // The actors may outlive the communicators; a request by message to a rank whose communicator is gone is refused.
  auto accept = [weak = std::weak_ptr<communicator_state>(s)](rank_t rank, const call_description& what) {
    const auto of = weak.lock();
    if (!of) throw error(errc::invalid_argument, "the communicator of this rank actor was destroyed");
    return of->prepare(rank, what, caller_waits::yes);
  };
  std::optional<actors::job_part> part;
  if (job != nullptr) {
    part = *job;
    part->cores =
        actors::cores_shared(runtime->job()->all(), runtime->job()->here(), part->process_of, runtime->cores());
    if (reach_map{s->placement}.farthest() == reach::segment && plans.has_boards(s->placement)) {
      part->boards_in = runtime->job()->boards_for(part->id, part->process_of, actors::job_links::boards_of::all_ranks);
      if (!part->boards_in) live_apart(s->placement);
    } else {
      meet_on_host(*part, s->placement);
    }
  }
  s->members = runtime->make_actors(s->name, s->ranks, channels, plans.has_boards(s->placement),
                                    std::move(machine_ranks), s->run, std::move(accept), part ? &*part : nullptr);
  s->table = &actors::runtime::ranks_of(*s->members);
  std::vector<rank_t> here;
  here.reserve(s->table->cells().size());
  for (const auto& cell : s->table->cells()) here.push_back(cell->rank());
  s->shrunk.prepare(std::move(here), s->ranks);
  return s;
}

// -- engine -----------------------------------------------------------------------------------------------------------

struct TROUPE_INTERNAL engine::impl {
  std::shared_ptr<engine_core> core;
};

namespace {

/// A callback may hold the last reference to an engine. It runs on a thread that the engine itself waits for, so the end is left to
/// another thread; everything under way fails at once all the same.
void close_from_anywhere(std::shared_ptr<engine_core> core) {
  if (!actors::no_waiting::here()) return core->close();
  core->door.shut();
  std::thread([core = std::move(core)] { core->close(); }).detach();
}

/// Of an engine that has not been moved from.
template <class Impl>
const std::shared_ptr<engine_core>& held(const std::unique_ptr<Impl>& engine) {
  if (!engine) throw error(errc::invalid_argument, "the engine was moved from");
  return engine->core;
}

}  // namespace

engine::engine(engine_options options) : impl_(std::make_unique<impl>()) {
  impl_->core = std::make_shared<engine_core>(with_environment(std::move(options)));
}
engine::engine(engine&&) noexcept = default;
engine& engine::operator=(engine&& other) noexcept {
  if (this != &other) {
    if (impl_) close_from_anywhere(std::move(impl_->core));
    impl_ = std::move(other.impl_);
  }
  return *this;
}
engine::~engine() {
  if (impl_) close_from_anywhere(std::move(impl_->core));
}

std::shared_ptr<std::pmr::memory_resource> engine::memory() const {
  const auto& memory = held(impl_)->memory;
  return {memory, &memory->pooled()};
}

const engine_options& engine::options() const noexcept {
  static const engine_options of_none;  // whose engine was moved from
  return impl_ ? impl_->core->options : of_none;
}

std::vector<std::string> engine::traced_routes() const {
  const gate::pass inside{held(impl_)->door};
  return inside ? held(impl_)->runtime->traced_routes() : std::vector<std::string>{};
}
std::vector<element_traffic> engine::traffic() const {
  const gate::pass inside{held(impl_)->door};
  return inside ? held(impl_)->runtime->traffic() : std::vector<element_traffic>{};
}

namespace {

[[noreturn]] void refuse_closing() {
  throw error(errc::engine_closed, "the engine is being destroyed; it makes no communicators any more");
}

std::shared_ptr<communicator_state> found_world(const std::shared_ptr<engine_core>& core, int ranks,
                                                std::shared_ptr<actors::run_threads> run) {
  if (ranks < 1) throw error(errc::invalid_argument, "an engine needs at least one rank, not " + std::to_string(ranks));
  if (ranks > most_ranks_of_a_process)
    throw error(errc::invalid_argument, "one process performs at most " + std::to_string(most_ranks_of_a_process) +
                                            " ranks, not " + std::to_string(ranks));
  if (core->has_layout && ranks > core->machine_layout.size())
    throw error(errc::invalid_argument, "the layout " + core->options.layout + " has " +
                                            std::to_string(core->machine_layout.size()) + " places but " +
                                            std::to_string(ranks) + " ranks were asked for");
  const fault_options& faults = core->options.faults;
  if (faults.kill_after >= 0 && faults.kill_rank >= ranks)
    throw error(errc::invalid_argument, "faults.kill_rank is " + std::to_string(faults.kill_rank) +
                                            ", but there are ranks 0 to " + std::to_string(ranks - 1) +
                                            ": nobody would be killed");
  std::vector<int> places(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) places[static_cast<std::size_t>(r)] = r;
  layout placement = core->has_layout ? core->machine_layout.subset(places) : layout::flat(ranks);
  placement.reduces = core->machine_layout.reduces;
  core->plans.leave_idle(std::max(0, core->runtime->cores() - ranks));
  const int number = core->worlds++;
  return core->found(number == 0 ? "world" : "world" + std::to_string(number), std::move(placement), places,
                     std::move(run));
}

}  // namespace

// For engine/api/caf_actors.hpp.
struct engine_access {
  static const std::shared_ptr<engine_core>& core_of(engine& e) { return held(e.impl_); }
};
struct communicator_access {
  static const communicator_state* state_of(const communicator& c) { return c.impl_ ? c.impl_->of.get() : nullptr; }
  static void take_along(const communicator& c, const communicator& copy) { c.impl_->of->takes_along(copy.impl_->of); }
};

const std::shared_ptr<engine_core>& core_of(engine& of) { return engine_access::core_of(of); }
const communicator_state* state_of(const communicator& of) { return communicator_access::state_of(of); }
void take_along(const communicator& of, const communicator& copy) { communicator_access::take_along(of, copy); }

TROUPE_API actors::runtime& runtime_of(engine& of) {
  engine_core& core = *engine_access::core_of(of);
  if (!core.runtime) throw error(errc::engine_closed, "the engine was destroyed");
  return *core.runtime;
}

layout layout_of_job(engine& joined) {
  layout all = layout_of(runtime_of(joined).job()->all());
  // As the world communicator has them, so that plans are the same.
  all.copies = runtime_of(joined).job()->copies();
  all.reduces = layout::reduction_of(joined.options().layout);
  return all;
}

const std::vector<double>& costs_of_job(engine& joined) { return runtime_of(joined).job()->all().costs; }

TROUPE_API actors::communicator_actors& actors_of(const communicator& of) {
  const communicator_state* s = communicator_access::state_of(of);
  if (s == nullptr) throw error(errc::invalid_argument, "this communicator is empty");
  return *s->members;
}

std::vector<communicator> engine::communicators(int ranks) {
  const gate::pass inside{held(impl_)->door};
  if (!inside) refuse_closing();
  return here(found_world(held(impl_), ranks, nullptr));
}

/// The handles of the ranks that live in this process.
std::vector<troupe::communicator> engine::here(const std::shared_ptr<communicator_state>& of) {
  std::vector<troupe::communicator> result;
  for (const auto& cell : of->table->cells()) {
    auto i = std::make_shared<troupe::communicator::impl>();
    i->of = of;
    i->rank = cell->rank();
    result.push_back(troupe::communicator{std::move(i)});
  }
  return result;
}

namespace {
constexpr std::chrono::hours longest{24 * 365};  // more would not fit into a clock
}

std::vector<troupe::communicator> engine::join_communicators(int ranks_here, const join_options& how) {
  const gate::pass inside{held(impl_)->door};
  if (!inside) refuse_closing();
  return joined(ranks_here, how, nullptr);
}

std::vector<troupe::communicator> engine::joined(int ranks_here, const join_options& how,
                                                 const std::shared_ptr<actors::run_threads>& run) {
  const auto until = std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(how.deadline, longest);
  join_job(*held(impl_), how, ranks_here);
  const auto world = found_job_world(*held(impl_), run);
  if (!held(impl_)->has_grown) return here(world);
  std::vector<int> order;  // new ranks stay where they are, behind the old ones
  for (const auto& cell : world->table->cells()) order.push_back(cell->rank());
  return troupe::communicator::ordered(here(world), order, until,
                                       [&how] { return how.cancel != nullptr && how.cancel->load(); });
}

namespace {
/// The number of a rank among those of its host, which should begin on CPUs of their own.
int place_on_host(const communicator_state& of, rank_t rank) {
  const auto& homes = of.placement.homes;
  const auto end = homes.begin() + rank;
  return static_cast<int>(std::count_if(homes.begin(), end, [&](const residence& r) { return r.host == end->host; }));
}
}  // namespace

communicator engine::communicator(const job_id& id, int ranks, int rank, const join_options& how) {
  const gate::pass inside{held(impl_)->door};
  if (!inside) refuse_closing();
  join_job(*held(impl_), id, ranks, rank, how);
  troupe::communicator mine = std::move(here(found_job_world(*held(impl_), nullptr)).front());
  begin_on_cpu(place_on_host(*mine.impl_->of, mine.rank()));
  return mine;
}

troupe::communicator engine::join(const join_options& how) {
  troupe::communicator mine = std::move(join_communicators(1, how).front());
  begin_on_cpu(place_on_host(*mine.impl_->of, mine.rank()));
  return mine;
}

void engine::join(int ranks_here, const std::function<void(troupe::communicator&)>& body, const join_options& how) {
  const auto run = std::make_shared<actors::run_threads>(std::max(ranks_here, 1));
  std::vector<troupe::communicator> comms;
  {
    const gate::pass inside{held(impl_)->door};
    if (!inside) refuse_closing();
    comms = joined(ranks_here, how, run);
  }
  run_on_threads(run, std::move(comms), body);
}

/// The last calls that ran ahead are compared now: nothing comes after them that could.
void engine::confirm(troupe::communicator& of) {
  if (!of) return;
  const troupe::communicator::impl& member = *of.impl_;
  const auto open = std::make_shared<bool>(false);
  {
    const gate::pass inside{member.of->core->door, member.doorway()};
    if (!inside) return;
    const auto asked = std::make_shared<actors::completion>();
    member.of->cell(member.rank).post(actors::rank_order{[open, asked](actors::rank_state& s, actors::rank_outbox&) {
      *open = s.any_unconfirmed();
      asked->complete(nullptr);
    }});
    member.of->wait(member.rank, asked);
  }
  if (!*open) return;
  try {
    of.barrier();
  } catch (const error& e) {
    // Any other end is none of the body's: where the last operation was performed on some ranks only, those have nothing to compare, and
    // leave. Failures that are not told here are logged when all have left.
    if (e.code_value() == errc::mismatch) throw;
  }
}

void engine::run(int ranks, const std::function<void(troupe::communicator&)>& body) {
  const auto run = std::make_shared<actors::run_threads>(std::max(ranks, 1));
  std::vector<troupe::communicator> comms;
  {
    const gate::pass inside{held(impl_)->door};
    if (!inside) refuse_closing();
    comms = here(found_world(held(impl_), ranks, run));
  }
  run_on_threads(run, std::move(comms), body);
}

void engine::run_on_threads(const std::shared_ptr<actors::run_threads>& run, std::vector<troupe::communicator> comms,
                            const std::function<void(troupe::communicator&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto& first_rank = *comms.front().impl_;
  const int first_cpu = first_rank.of->process_of.empty() ? 0 : place_on_host(*first_rank.of, first_rank.rank);
  const auto call = [&](int which) {
    begin_on_cpu(first_cpu + which);
    actors::runtime::enter_run(run, which);
    troupe::communicator mine = std::move(comms[static_cast<std::size_t>(which)]);
    bool all_called = false;
    try {
      body(mine);
      all_called = true;
      confirm(mine);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      // A mismatch that confirm() finds need not end others: a rank that is late hears of it by the call that it is in.
      if (!all_called) mine.abort(text_of(std::current_exception()));
    }
    mine = {};
    actors::runtime::leave_run();
  };
  std::vector<std::thread> threads;
  threads.reserve(comms.size());
  try {
    for (int which = 0; which < static_cast<int>(comms.size()); ++which) threads.emplace_back(call, which);
  } catch (const std::system_error& e) {
    const std::string text =
        "no thread can be started for rank " + std::to_string(comms[threads.size()].rank()) + ": " + e.what();
    const std::lock_guard lock(mutex);
    first = std::make_exception_ptr(error(errc::out_of_memory, text));
    comms[threads.size()].abort(text);
  }
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace troupe
