// SPDX-License-Identifier: Apache-2.0
// A handle has a copy of its communicator, on whose boards nobody else sleeps and in whose memory the buffers lie: with it they end, and by it a rank that
// waits hears when the others cannot come any more.

#include "engine/api/ll_session.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <spdlog/spdlog.h>

#include "actors/ports/ll/ll_port.hpp"
#include "engine/api/communicator.hpp"
#include "engine/api/end_of_communicator.hpp"
#include "engine/planning/plan_choice.hpp"
#include "engine/world/communicator_state.hpp"
#include "memory/word_hash.hpp"
#include "topology/reach.hpp"

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

std::string number(std::size_t n) { return std::to_string(n); }

[[noreturn]] void refuse(const std::string& why) { throw error(errc::invalid_argument, "ll_session: " + why); }

std::string wrong_options(const ll_options& o) {
  const auto in_range = [](std::size_t n) { return n >= 1 && n <= ll_options::most_bytes; };
  if (!in_range(o.elements) || !in_range(o.element_bytes) || !in_range(o.blocks))
    return number(o.blocks) + " blocks of " + number(o.elements) + " elements of " + number(o.element_bytes) +
           " bytes; each of them must be between 1 and " + number(ll_options::most_bytes);
  // No overflow: each factor is checked before it is multiplied.
  const std::size_t slots = o.elements * ll_shape::units_of(o.element_bytes);
  if (slots > ll_options::most_bytes || slots * o.blocks > ll_options::most_bytes ||
      ll_handle::bytes(o) > ll_options::most_bytes)
    return number(o.blocks) + " blocks of " + number(o.elements) + " elements of " + number(o.element_bytes) +
           " bytes need more than the " + number(ll_options::most_bytes) +
           " bytes that a buffer may have; larger messages are for the collectives";
  return {};
}

ll_shape shape_of(const ll_options& o) { return {o.elements, o.element_bytes, o.blocks}; }

/// The words of ranks to each other when they make a handle.
struct introduction {
  std::uint64_t options = 0;  ///< a fingerprint; 0: they were refused
  std::uint64_t at = 0;       ///< the buffer, from where all see the same; 0: there is no memory for it
};

std::uint64_t fingerprint_of(const ll_options& o) {
  word_hash all;
  for (const std::uint64_t word : {o.elements, o.element_bytes, o.blocks}) all.add(word);
  return all.state | 1;
}

}  // namespace

struct TROUPE_INTERNAL ll_handle::inside {
  inside(communicator& of, const ll_options& how);
  ~inside() {
    if (port) port->leave();
  }
  inside(const inside&) = delete;
  inside& operator=(const inside&) = delete;

  const communicator_state& state() const { return *state_of(copy); }
  /// Constants of the rank's port; reading them needs no turn.
  slot_board& board() const { return state().cell(rank).state().port()->board(); }
  std::vector<ll::word*> find_buffers(const std::string& wrong);
  void wait(const ll_port::wanted& what);
  [[noreturn]] void late(const ll_port::wanted& what, std::chrono::nanoseconds time) const;

  const ll_options options;
  const communicator_state* const made_with;  ///< to be compared only
  const rank_t rank;
  const int ranks;
  std::optional<std::chrono::nanoseconds> deadline;
  communicator copy;
  std::optional<ll_port> port;
  std::vector<bool> open;  ///< by block
};

namespace {

/// Ends a rank's wait when its communicator has ended, or nobody can end it any more.
class end_watch final : public slot_watch {
public:
  end_watch(communicator& of, const communicator_state& state, const ll_port& port, const ll_port::wanted& what,
            rank_t rank)
      : of_(of), state_(state), port_(port), what_(what), rank_(rank) {}

  bool stop() noexcept override {
    try {
      state_.core->runtime->help_briefly();  // where the engine has no threads of its own, nobody else does
      end_.emplace(of_);
      if (end_->came()) return true;
      end_.reset();
      if (!told_ && clock::now() - begun_ > communicator_state::long_time) tell();
      return port_.is_stuck(what_);
    } catch (...) {
      problem_ = std::current_exception();
      return true;
    }
  }
  /// @pre it has stopped the wait
  [[noreturn]] void raise() {
    if (problem_) std::rethrow_exception(problem_);
    if (end_) end_->raise();
    std::string text = title() + ", which never comes";
    for (rank_t r = 0; r < of_.size(); ++r)
      if (r != rank_)
        text += (r == (rank_ == 0 ? 1 : 0) ? ": rank " : ", rank ") + std::to_string(r) + " " + port_.describe(r);
    throw error(errc::rank_missing, text);
  }
  std::string title() const {
    return "ll_session: rank " + std::to_string(rank_) + " waits for element " + number(what_.start) + " in epoch " +
           std::to_string(what_.epoch) + " of block " + number(what_.block);
  }

private:
  void tell() {
    told_ = true;
    state_.core->log->warn("waiting for more than {} s: {}, {}", communicator_state::long_time.count(), state_.name,
                           title());
  }
  communicator& of_;
  const communicator_state& state_;
  const ll_port& port_;
  const ll_port::wanted what_;
  const rank_t rank_;
  const clock::time_point begun_ = clock::now();
  bool told_ = false;
  std::optional<end_of_communicator> end_;
  std::exception_ptr problem_;
};

communicator copy_of(communicator& of, const std::optional<std::chrono::nanoseconds>& deadline) {
  call_options how;
  how.deadline = deadline;
  return of.duplicate(std::move(how));
}

const communicator_state& with_boards(const communicator& of) {
  const communicator_state* const found = state_of(of);
  if (found == nullptr) refuse_empty();
  if (found->table->has_boards()) return *found;
  std::string why = plan_choice::why_no_boards(found->core->options, reach_map{found->placement});
  if (why.empty()) why = "they are too many, or the system gives no memory for it";
  throw error(errc::unsupported, "ll_session: the ranks of " + found->name + " do not all write to the same memory: " +
                                     why + "; of ranks on several hosts split() makes parts that do");
}

}  // namespace

// -- the handle -----------------------------------------------------------------------------------------------------------

ll_handle::inside::inside(communicator& of, const ll_options& how)
    : options(how),
      made_with(&with_boards(of)),
      rank(of.rank()),
      ranks(of.size()),
      deadline(made_with->deadline_for(rank, how.deadline).optional()),
      copy(copy_of(of, deadline)) {
  static_cast<void>(with_boards(copy));  // of its own, for which there may have been no room
  const std::string wrong = wrong_options(how);
  std::vector<ll::word*> buffers = find_buffers(wrong);
  port.emplace(board(), rank, shape_of(how), std::move(buffers), state().table->waiting());
  open.assign(how.blocks, false);
  if (const std::uint64_t first = state().core->options.first_operation; first > 0)
    port->begin_at(static_cast<std::uint32_t>(std::clamp<std::uint64_t>(first, ll::first_epoch, ll::last_epoch)));
}

/// Each rank takes its own, and tells the others where: the distance from a line that all processes find in the same memory.
std::vector<ll::word*> ll_handle::inside::find_buffers(const std::string& wrong) {
  auto* const origin = reinterpret_cast<std::byte*>(&board().channel(0, 0));
  introduction mine;
  if (wrong.empty()) {
    mine.options = fingerprint_of(options);
    if (auto* const taken = static_cast<std::byte*>(board().memory().take(ll_port::bytes_of(shape_of(options)))))
      mine.at = reinterpret_cast<std::uint64_t>(taken) - reinterpret_cast<std::uint64_t>(origin);
  }
  std::vector<introduction> all(static_cast<std::size_t>(ranks));
  copy.all_gather(mine, all, {.deadline = deadline});
  if (!wrong.empty()) refuse(wrong);
  std::vector<ll::word*> buffers;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string who = "ll_session: rank " + number(r);
    if (all[r].options == 0) throw error(errc::peer_refused, who + " refused its options; its own error says why");
    if (all[r].options != all[0].options)
      throw error(errc::mismatch, who + " has another number of elements, bytes or blocks than rank 0");
    if (all[r].at == 0)
      throw error(errc::out_of_memory, who + " has no memory for its buffer of " + number(ll_handle::bytes(options)) +
                                           " bytes that the others could reach");
    buffers.push_back(reinterpret_cast<ll::word*>(origin + static_cast<std::ptrdiff_t>(all[r].at)));
  }
  return buffers;
}

void ll_handle::inside::wait(const ll_port::wanted& what) {
  if (port->look(what)) return;
  const communicator_state& of = state();
  const gate::pass inside_engine{of.core->door, static_cast<std::size_t>(rank)};
  if (!inside_engine) refuse_closed();
  actors::runtime::check_may_wait();
  const auto begun = clock::now();
  const bool ends = deadline && *deadline < clock::time_point::max() - begun;
  end_watch watch{copy, of, *port, what, rank};
  switch (port->sleep(what, ends ? begun + *deadline : clock::time_point::max(), watch)) {
    case ll_port::waited::came: return;
    case ll_port::waited::timed_out: late(what, *deadline);
    case ll_port::waited::stopped: watch.raise();
    case ll_port::waited::overtaken: break;
  }
  throw error(errc::mismatch,
              watch.title() +
                  ", and a peer has written over it in a later one; a rank has to receive, in every epoch, from "
                  "those that it sends to in the next");
}

void ll_handle::inside::late(const ll_port::wanted& what, std::chrono::nanoseconds time) const {
  std::string text = "ll_session: rank " + std::to_string(rank) + " has waited " +
                     std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) +
                     " ms for element " + number(what.start);
  if (what.count > 1) text += " and " + number(what.count - 1) + " more";
  text += " in epoch " + std::to_string(what.epoch) + " of block " + number(what.block);
  const char* const none = "; in other epochs: rank ";
  const char* before = none;
  for (rank_t r = 0; r < ranks; ++r)
    if (const std::uint32_t its = port->epoch(what.block, r); its != what.epoch)
      text += std::exchange(before, ", rank ") + std::to_string(r) + " (epoch " + std::to_string(its) + ")";
  if (before == none) text += "; all ranks are in that epoch, and somebody has not sent it";
  throw error(errc::timed_out, text);
}

ll_handle::ll_handle(communicator& comm, const ll_options& options) {
  if (!comm) refuse_empty();
  what_ = std::make_shared<inside>(comm, options);
}

const ll_options& ll_handle::options() const noexcept { return what_->options; }

// -- the session ------------------------------------------------------------------------------------------------------------

ll_session::ll_session(std::shared_ptr<ll_handle::inside> what, std::size_t block)
    : what_(std::move(what)), block_(block) {
  if (!what_) refuse("the handle is empty (moved from)");
  ll_handle::inside& in = *what_;
  if (block >= in.options.blocks)
    refuse("block " + number(block) + "; the handle has " + number(in.options.blocks) + ", from 0");
  if (in.open[block])
    refuse("rank " + std::to_string(in.rank) + " has a session at block " + number(block) +
           " already; end it, or make a handle with more blocks");
  in.open[block] = true;
  elements_ = in.options.elements;
  element_bytes_ = in.options.element_bytes;
  epoch_ = in.port->epoch(block, in.rank);
  region_ = in.port->region(block, epoch_);
}

ll_session::ll_session(const communicator& comm, const ll_handle& handle, std::size_t block)
    : ll_session(handle.what_, block) {
  const communicator_state* const of = state_of(comm);
  if (of == what_->made_with && comm.rank() == what_->rank) return;
  if (of == nullptr) refuse_empty();
  refuse("the handle was made with another communicator than " + of->name + ", or by another rank than " +
         std::to_string(comm.rank()));
}

ll_session::ll_session(communicator& comm, const ll_options& options)
    : ll_session(ll_handle{comm, options}.what_, std::size_t{0}) {}

ll_session::~ll_session() { what_->open[block_] = false; }

void ll_session::send_bytes(rank_t peer, std::size_t element, const void* data, std::size_t bytes) {
  check_elements(element, 1, 1, bytes);
  if (peer < 0 || peer >= what_->ranks) [[unlikely]]
    refuse("a send to rank " + std::to_string(peer) + "; ranks are 0 to " + std::to_string(what_->ranks - 1));
  what_->port->send(block_, epoch_, peer, element, data, bytes);
}

void ll_session::bcast_bytes(std::size_t element, const void* data, std::size_t bytes) {
  check_elements(element, 1, 1, bytes);
  what_->port->broadcast(block_, epoch_, element, data, bytes);
}

void ll_session::wait(std::size_t start, std::size_t count, std::size_t stride, std::size_t bytes) {
  what_->wait({block_, epoch_, start, count, stride, bytes});
}

void ll_session::end_epoch() {
  epoch_ = what_->port->end_epoch(block_, epoch_);
  region_ = what_->port->region(block_, epoch_);
}

void ll_session::refuse_elements(std::size_t start, std::size_t count, std::size_t stride, std::size_t bytes) const {
  if (bytes > element_bytes_)
    refuse("a type of " + number(bytes) + " bytes; the handle's elements have " + number(element_bytes_) +
           " (ll_options::element_bytes)");
  if (stride == 0) refuse("a stride of 0; elements are " + number(start) + ", and one further on");
  std::string what = "element " + number(start);
  if (count > 1) what = number(count) + " elements from " + number(start) + " on, each " + number(stride) + " further";
  refuse(what + "; a rank has " + number(elements_) + ", from 0 (ll_options::elements)");
}

void ll_session::refuse_nothing() const {
  refuse("a recv_reduce of 0 elements, which has no result; count is at least 1");
}

}  // namespace troupe
