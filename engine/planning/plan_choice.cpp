// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/plan_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/planning/plan_limits.hpp"
#include "engine/planning/planner.hpp"
#include "memory/error.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/partition.hpp"
#include "protocols/program/cell_places.hpp"
#include "protocols/program/slot_program.hpp"
#include "protocols/verify/reduction_forest.hpp"

namespace troupe {

namespace {

/// A slice should stay in L2 between the rank that writes and the one that reads it, and be long beside a message's latency.
constexpr std::size_t automatic_chunk = 256 * 1024;
/// A connection is a pipeline by itself: the receiver reads what the sender is still writing. So a slice is long beside the asking for its place.
constexpr std::size_t automatic_chunk_between_hosts = 1024 * 1024;
/// A score that only reads and writes other ranks' buffers gains nothing from slices, except that it can be cancelled between them.
constexpr std::size_t uncut_pass = std::size_t{16} << 20;
/// Where several slices of a step are under way together, shorter ones hide more of the latency; what they cost more decides.
constexpr std::size_t together_between_hosts = automatic_chunk_between_hosts / 4;
constexpr const char* small_staging = "its staging memory is too small for whole blocks; raise engine.scratch_bytes";
/// Of all ranks' programs of a plan together: some 200 MB.
constexpr std::size_t most_instructions = std::size_t{1} << 21;

std::size_t ceiling(std::size_t a, std::size_t b) { return a / b + (a % b != 0); }

}  // namespace

/// Bytes that a rank converts or scales before and after, on average.
double staging_bytes(const contender& c, const planning_task& task) {
  if (!c.widened && (!task.rules.scaled || c.scales_reads)) return 0;
  const double block = static_cast<double>(task.mean_block()) * static_cast<double>(size_of(c.work_type));
  const double in = block * input_blocks(task.what.what, task.ranks(), task.what.root, task.what.root).count;
  return in + (c.widened ? block : 0);
}

slot_format format_of(message_protocol which) {
  return which == message_protocol::ll ? slot_format::ll : slot_format::ll128;
}
message_protocol protocol_of(slot_format format) {
  return format == slot_format::ll ? message_protocol::ll : message_protocol::ll128;
}

std::size_t largest_part(std::size_t count, std::size_t n) {
  std::size_t most = 0;
  for (std::size_t k = 0; k < n; ++k) most = std::max(most, part_begin(count, n, k + 1) - part_begin(count, n, k));
  return most;
}

std::size_t planning_task::largest_block() const {
  if (!moves_data(what.what)) return 0;
  return counts.empty() ? what.count : *std::max_element(counts.begin(), counts.end());
}

std::size_t planning_task::mean_block() const {
  if (what.uniform || counts.empty()) return largest_block();
  double total = 0;
  for (const std::size_t n : counts) total += static_cast<double>(n);
  return static_cast<std::size_t>(std::ceil(total / static_cast<double>(counts.size())));
}

namespace {

planning_task checked(planning_task task) {
  const call& what = task.what;
  if (has_root(what.what) && (what.root < 0 || what.root >= task.ranks()))
    throw error(errc::bad_root, to_string(what) + ": the root must be a rank of 0…" + std::to_string(task.ranks() - 1));
  // The widest that any choreography may work in; throws size_overflow.
  const std::size_t width = task.rules.sums_in_f32 ? sizeof(float) : size_of(what.type);
  const call_shape sizes{what.count, task.counts, {}, {}, width};
  const rank_t rank = has_root(what.what) ? what.root : 0;
  input_bytes(what.what, task.ranks(), what.root, rank, sizes);
  output_bytes(what.what, task.ranks(), what.root, rank, sizes);
  return task;
}

}  // namespace

void check_counts(const call& what, int ranks, const std::vector<std::size_t>& counts) {
  const auto blocks = static_cast<std::size_t>(block_count(what.what, ranks));
  if (counts.size() == blocks) return;
  throw error(errc::invalid_argument, to_string(what) + " has " + std::to_string(blocks) +
                                          " blocks, but the sizes of " + std::to_string(counts.size()) + " were given");
}

planning_task make_task(const call& what, const layout& placement, const std::vector<std::size_t>* counts) {
  planning_task task{what, placement, reach_map{placement}, {}, rules_of(what, placement.size())};
  if (!what.uniform && counts) task.counts = *counts;
  if (!what.uniform) check_counts(what, task.ranks(), task.counts);
  return checked(std::move(task));
}

planning_task task_of_class(const call& what, const layout& placement, std::size_t largest) {
  planning_task task{what, placement, reach_map{placement}, {}, rules_of(what, placement.size())};
  task.what.count = largest;
  return checked(std::move(task));
}

bool may_run_ahead(const planning_task& task) {
  return task.what.agreement == agreement_time::eager && has_root(task.what.what) &&
         !traits_of(task.what.what).data_tell_all;
}

// -- shaping and pricing ----------------------------------------------------------------------------------------------

namespace {
/// Its sums are one pass of the kernel, which scales the inputs as it reads them if that is asked for.
bool needs_no_staging(const contender& c) {
  return c.lowered->sums_in_one_pass() && (!c.scales_reads || c.lowered->folds_inputs());
}
}  // namespace

contender plan_choice::contender_of(const std::string& name, const planning_task& task) {
  contender c;
  c.choreography = name;
  bound(c, task, false);
  return c;
}

void plan_choice::consider(contender& c, const planning_task& task) {
  if (c.eligible() && !c.written) write(c, task);
  if (c.eligible() && !c.priced) price_cuts(c, task, std::array{c.cut});
}

/// One pass of the kernel scales and adds in f32, and rounds once by itself; anything else needs wide partial results, and inputs that are
/// scaled before.
void plan_choice::write(contender& c, const planning_task& task) {
  const bool one_pass = may_take_one_pass(task);
  if (one_pass) prepare(c, task, false, task.rules.scaled);
  if (!one_pass || !c.eligible() || !needs_no_staging(c)) {
    c.lowered.reset();
    prepare_staged(c, task);
  }
  c.written = true;
  // Built-in ones have refused; a user's score says what it touches.
  if (!c.eligible()) return;
  std::string why;
  if (c.lowered->uses_l2) why = task.where.why_apart();
  else if (c.lowered->touches_other_ranks) why = task.where.why_no_buffers();
  if (!why.empty()) c.why_rejected = "it reads or writes memory that all ranks reach, and " + why;
  else if (task.what.pieces > 0) c.why_rejected = why_not_in_pieces(c, task);
  if (c.eligible() && task.what.pieces > 0 && !stages_whole_blocks(c, task)) c.why_rejected = small_staging;
}

/// A pass over whole buffers before the first step or after the last one cannot be done piece by piece.
std::string plan_choice::why_not_in_pieces(const contender& c, const planning_task& task) const {
  const std::string type{name(task.what.type)};
  if (c.widened) return "its sums of " + type + " are kept in f32, and rounded when all of them are complete; use f32";
  if (task.rules.scaled) return "pre_mul_sum scales the input before the operation begins; scale it yourself";
  if (c.on.in_place != (task.what.in_place && agrees_on_place(task.what.what, true)))
    return "it brings input and output together before the operation begins";
  if (c.lowered->uses_l2 && !task.where.routed())
    return "its parts would go through L2 by messages, and those of ranks on no card go over memory that they share";
  if (std::string why = why_not_partitioned(*c.lowered->notes); !why.empty()) return why;
  if (!c.lowered->touches_other_ranks) return {};
  if (task.where.routed() || task.where.farthest() != reach::process)
    return "its ranks read or write each other's memory, which parts do where all of them are in one process";
  // What is only copied goes from buffer to buffer anyway, and need not wait for other ranks' parts.
  if (!is_reduction(task.what.what))
    return "its ranks read or write each other's memory when a part is ready at all of them, which pays where "
           "parts are summed up";
  // What a rank hears before it reads has to come from those whose memory that is. Copies of a lane do not meet: what holds of one piece does of all.
  score_key one = key_of_pieces(c, task);
  one.pieces = 1;
  const std::shared_ptr<const verdict>& v = library_.get(one)->verified();
  return v->ok() ? std::string{} : "in parts it does not verify: " + to_string(*v->first_fault);
}

/// Calls that are sent in pieces, or posted to a NIC, do not meet.
bool plan_choice::meets_on_board(const planning_task& task) const {
  const message_protocol said = task.what.protocol != message_protocol::unset
                                    ? task.what.protocol
                                    : parse_message_protocol(options_.protocol).value_or(message_protocol::automatic);
  const bool may = said == message_protocol::automatic || said == message_protocol::direct;
  return may && task.what.pieces == 0 && !task.what.offload && why_not_direct(task).empty();
}

void plan_choice::frame(contender& c, const planning_task& task, bool widened, bool scales_reads) {
  c.widened = widened;
  c.scales_reads = scales_reads;
  c.work_type = widened ? datatype::f32 : task.what.type;
  c.on.what = task.what.what;
  c.on.ranks = task.ranks();
  c.on.root = has_root(task.what.what) ? task.what.root : 0;
  const bool staged = widened || (task.rules.scaled && !scales_reads);
  c.on.in_place = task.what.in_place && agrees_on_place(task.what.what, task.what.uniform) && !staged;
  // Staged buffers are brought to what the user's score takes them for, and so are those of a root, which alone knows whether its call is in place.
  if (staged || has_root(task.what.what)) c.on.in_place = library_.in_place(c.choreography).value_or(c.on.in_place);
  c.on.uniform = task.what.uniform;
  c.on.placement = task.placement;
  c.on.streams = options_.streams;
  c.on.through_scratch = options_.through_scratch || task.selected.through_scratch;
  c.on.on_board = !staged && meets_on_board(task);
  c.on.contiguous = task.where.routed();
  c.why_rejected = library_.refusal(c.choreography, c.on);
}

void plan_choice::prepare(contender& c, const planning_task& task, bool widened, bool scales_reads) {
  frame(c, task, widened, scales_reads);
  if (c.eligible()) shape(c, task);
}

/// Chooses how to cut, and with it the lowering. A price that decides nothing yet is left for later.
void plan_choice::shape(contender& c, const planning_task& task) {
  c.priced = c.direct_priced = false;
  c.over_slots = {};
  try {
    const bool split = c.rank_order_fold || !task.what.uniform;
    const auto whole = library_.get({c.choreography, c.on, split, c.rank_order_fold});
    c.lowered = whole;
    c.cut = cutting{};
    const bool by_address = task.where.farthest() == reach::process;
    if ((!task.what.uniform || !by_address) && whole->touches_other_ranks) {
      c.seconds = never;
      c.priced = true;
      return;
    }
    const std::vector<cutting> able = cuts(c, task, *whole);
    if (able.size() > 1 || able.front() != c.cut) price_cuts(c, task, able);
    if (c.eligible()) c.why_rejected = why_no_room(c, task);
  } catch (const error& e) {
    c.why_rejected = e.what();
    c.faulty = e.code_value() == errc::bad_score;
  }
}

void plan_choice::price_cuts(contender& c, const planning_task& task, std::span<const cutting> cuts) {
  c.priced = true;
  c.seconds = never;
  for (const cutting& cut : cuts) price(c, task, cut);
  // Several slices in a step need more credits than one.
  for (const cutting& cut : cuts)
    for (int n = cut.slices_per_step / 2; n > 0 && !std::isfinite(c.seconds); n /= 2)
      price(c, task, {cut.channels, cut.slices, n});
  if (!std::isfinite(c.seconds))
    c.why_rejected = "it cannot go on with the credits that there are (" + std::to_string(options_.credits) + ")";
}

void plan_choice::price(contender& c, const planning_task& task, const cutting& cut) {
  const bool split = c.rank_order_fold || !task.what.uniform || cut != cutting{};
  const auto lowered = library_.get({c.choreography, c.on, split, c.rank_order_fold});
  const std::size_t bytes = task.mean_block() * size_of(c.work_type);
  std::optional<machine> elements;
  if (task.where.routed()) elements.emplace(task.placement, machine_options{options_.nic_ports, true});
  const double seconds =
      lowered->predict(bytes, cut, staging_bytes(c, task), through_actors(task, size_class(bytes), c.work_type),
                       &task.where, elements ? &*elements : nullptr) +
      costs(task).actor_operation_seconds(task.where.most_ranks_of_computer());
  // Operations that are under way together leave the caches earlier, of which the model knows nothing.
  constexpr double worth_it = 0.95;
  if (!(seconds < (cut.slices_per_step > 1 && c.cut.slices_per_step == 1 ? worth_it : 1) * c.seconds)) return;
  c.seconds = seconds;
  c.cut = cut;
  c.lowered = lowered;
}

machine_constants plan_choice::through_actors(const planning_task& task, std::size_t bytes, datatype type) const {
  return costs(task).through_actors(bytes_a_core(task, bytes), type, task.where.most_ranks_of_host(),
                                    task.where.computers());
}

/// Of all computers.
int plan_choice::cores(const planning_task& task) const { return costs(task).machine.cores * task.where.computers(); }

/// Of all ranks' buffers, what each core has to do with.
double plan_choice::bytes_a_core(const planning_task& task, std::size_t block_bytes) const {
  const double block = static_cast<double>(block_bytes), blocks = traits_of(task.what.what).footprint(task.ranks());
  return std::max(1.0, block * blocks / std::max(1, std::min(cores(task), task.ranks())));
}

/// Elements that each of the cells which slices use again may have, where a call's staging memory is given (BCopy); else no limit.
std::size_t plan_choice::staged_elements(const contender& c, const planning_task& task,
                                         const lowered_score& whole) const {
  std::size_t cells = 0;
  if (c.on.through_scratch)
    for (const part& player : whole.notes->players) cells = std::max(cells, player.l0.size());
  if (cells == 0) return std::numeric_limits<std::size_t>::max();
  const std::size_t bytes = task.selected.scratch_bytes > 0 ? task.selected.scratch_bytes : options_.scratch_bytes;
  // As HCCL: a piece is whole multiples of 16 KiB, if the memory is enough for one.
  constexpr std::size_t multiple = 16u << 10;
  const std::size_t share = bytes / cells;
  const std::size_t each = (share < multiple ? share : share / multiple * multiple) / size_of(c.work_type);
  // Long slices begin on a line, and so may be longer by one; a channel's, too.
  constexpr std::size_t line = 64;
  return each < 16 * line ? each : each - 2 * line;
}

namespace {
/// Of a core group's L0, what a block of each of its ranks may take so that there is room wherever those of the other
/// ranks lie: all of it for a rank alone. Of n ranks, the others' n − 1 blocks of 1/2n leave n gaps, one of which is
/// that large.
std::size_t l0_of_rank(const layout& on, std::size_t l0) {
  std::map<coordinates, std::size_t> ranks;
  std::size_t most = 0;
  for (int r = 0; r < on.size(); ++r) most = std::max(most, ++ranks[on.of(r)]);
  return most == 1 ? l0 : l0 / (2 * most);
}
/// The same of L2: ranks that are through with one operation may begin the next, whose block must fit on one side of
/// the last one's.
std::size_t l2_of_operation(std::size_t l2) { return l2 / 3; }
}  // namespace

/// Elements that each cell in the L0 of a modelled core group may have, so that all cells of its ranks fit; else no
/// limit.
std::size_t plan_choice::elements_in_l0(const contender& c, const planning_task& task,
                                        const lowered_score& whole) const {
  std::size_t cells = 0;
  if (task.where.routed())
    for (const part& player : whole.notes->players) cells = std::max(cells, player.l0.size());
  if (cells == 0) return std::numeric_limits<std::size_t>::max();
  const std::size_t room = card_sizes::room_in(l0_of_rank(task.placement, options_.card.l0));
  const std::size_t each = room / cells / size_of(c.work_type);
  constexpr std::size_t line = 64;  // as in staged_elements()
  return each < 16 * line ? each : each - 2 * line;
}

/// As the end of a sentence: its cells in L0 or L2 do not fit the card that the ranks sit on. Empty if they do, or
/// there is none.
std::string plan_choice::why_no_room(const contender& c, const planning_task& task) const {
  const score& whole = *c.lowered->notes;
  if (!task.where.routed() || (whole.l2.empty() && !uses_l0(whole))) return {};
  call_shape shape{task.largest_block(), task.counts, {}, {}, size_of(c.work_type)};
  const bool pieces = task.what.pieces > 0;  // which are not cut further, and have cells of their own
  if (pieces && !why_not_partitioned(whole).empty()) return {};
  if (pieces) shape.pieces = task.what.counts;
  const auto parts = pieces ? library_.get(key_of_pieces(c, task)) : c.lowered;
  const score& s = *parts->notes;
  std::size_t in_l0 = 0, in_l2 = 0;
  for (rank_t r = 0; r < s.ranks; ++r) {
    cell_places places{s, r, pieces ? cutting{} : c.cut};
    places.set(shape);
    in_l0 = std::max(in_l0, card_sizes::taken_by(places.l0_bytes));
    in_l2 = card_sizes::taken_by(places.l2_bytes);
  }
  const auto exceeds = [](const char* tier, std::size_t need, const char* whose, std::size_t size, const char* key) {
    return std::string{"it needs "} + std::to_string(need) + " bytes of " + tier + ", and " + whose + " may take " +
           std::to_string(size) + " (engine.card." + key + ")";
  };
  const std::size_t most_l0 = l0_of_rank(task.placement, options_.card.l0), most_l2 = l2_of_operation(options_.card.l2);
  if (in_l0 > most_l0) return exceeds("L0", in_l0, "a rank", most_l0, "l0");
  if (in_l2 > most_l2) return exceeds("L2", in_l2, "an operation", most_l2, "l2");
  return {};
}

bool plan_choice::stages_whole_blocks(const contender& c, const planning_task& task) const {
  return staged_elements(c, task, *c.lowered) >=
         largest_part(task.largest_block(), static_cast<std::size_t>(std::max(1, c.lowered->notes->parts)));
}

/// By default only where latencies are long. Cells in L0 are the same memory in every slice.
int plan_choice::most_slices_per_step(const planning_task& task, const lowered_score& whole) const {
  if (!whole.moves_chunks || uses_l0(*whole.notes)) return 1;
  if (options_.slices_per_step > 0) return options_.slices_per_step;
  return task.where.farthest_link() == reach::network ? std::max(1, options_.credits / 2) : 1;
}

/// What the options leave open. A channel's slice has at most about the chunk's bytes (part_begin rounds to 64 elements), and a
/// slice at least one element of the largest cell.
std::vector<cutting> plan_choice::cuts(const contender& c, const planning_task& task,
                                       const lowered_score& whole) const {
  const std::size_t cell =
      largest_part(task.largest_block(), static_cast<std::size_t>(std::max(1, whole.notes->parts)));
  if (cell == 0) return {cutting{}};
  std::vector<int> channels{wanted_channels(task)};
  if (channels.front() == 0) {
    channels = {1};
    // Of one computer: a rank's channels to another host share its connections.
    for (int n = 2; n <= most_channels_tried && n * task.ranks() <= costs(task).machine.cores; n *= 2)
      channels.push_back(n);
  }
  const bool far = task.where.farthest_link() == reach::network;
  const std::size_t wanted_chunk = options_.chunk_bytes > 0 ? options_.chunk_bytes : task.selected.chunk_bytes;
  const std::size_t chunk = wanted_chunk > 0      ? wanted_chunk
                            : !whole.moves_chunks ? uncut_pass
                            : far                 ? automatic_chunk_between_hosts
                                                  : automatic_chunk;
  const int most_together = most_slices_per_step(task, whole);
  const std::size_t in_l0 = elements_in_l0(c, task, whole);
  std::vector<cutting> found;
  for (const int wanted : channels) {
    const std::size_t repeats =
        std::max<std::size_t>(1, most_instructions / std::max<std::size_t>(1, whole.single_steps));
    const std::size_t side = std::min({static_cast<std::size_t>(wanted), cell, repeats});
    const std::size_t length = largest_part(cell, side);
    const std::size_t most = std::max<std::size_t>(1, repeats / side);
    const std::size_t staged = staged_elements(c, task, whole) / side;
    if (staged < length && ceiling(length, std::max<std::size_t>(1, staged)) > std::min(most, length))
      throw error(errc::unsupported, "its staging memory is too small: blocks would go in more than " +
                                         std::to_string(std::min(most, length)) +
                                         " pieces; raise engine.scratch_bytes");
    const std::size_t longest = std::max<std::size_t>(1, std::min(staged, in_l0 / side));
    const auto add = [&](std::size_t bytes, int most_a_step) {
      const std::size_t elements = std::min(longest, std::max<std::size_t>(1, bytes / size_of(c.work_type)));
      const int slices =
          static_cast<int>(std::max<std::size_t>(1, std::min({ceiling(length, elements), length, most})));
      const cutting cut{static_cast<int>(side), slices, std::min(slices, most_a_step)};
      if (found.empty() || found.back() != cut) found.push_back(cut);
    };
    if (options_.slices_per_step == 0) add(chunk, 1);
    add(chunk, most_together);
    if (far && wanted_chunk == 0 && most_together > 1) add(together_between_hosts, most_together);
  }
  return found;
}

// -- slots ------------------------------------------------------------------------------------------------------------

namespace {
/// Of all blocks together: every pair of ranks keeps room for its messages. Below, the cost model decides.
constexpr std::size_t most_slot_bytes = 64 * 1024;

/// The same where everybody has or gets blocks of everybody. Beyond few ranks, blocks are small beside the room for them, which takes
/// longer to make than anything that follows, and messages between actors are soon as fast.
std::size_t most_exchanged_bytes(int ranks) {
  const double share = std::min(1.0, static_cast<double>(few_ranks) / ranks);
  return static_cast<std::size_t>(most_slot_bytes * share * share);
}

std::size_t bytes_of_all_blocks(const planning_task& task) {
  const call& c = task.what;
  const auto blocks = static_cast<std::size_t>(block_count(c.what, task.ranks()) <= 1 ? 1 : task.ranks());
  const std::size_t block = task.largest_block() * (task.rules.sums_in_f32 ? sizeof(float) : size_of(c.type));
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  return block <= most / blocks ? blocks * block : most;
}

/// Everybody with everybody: beyond, somebody else is always cheaper.
constexpr int most_direct_token_ranks = 16;
}  // namespace

std::string plan_choice::why_no_boards(const engine_options& options, const reach_map& where) {
  if (options.protocol == "simple") return "this engine has no boards to meet at, since its own protocol is simple";
  if (where.farthest() == reach::network) return where.why_apart();
  if (where.routed()) return "the layout places the ranks on several core groups, and boards bypass what is between";
  if (options.faults.any()) return "the faults that are asked for happen to messages between actors";
  return {};
}

std::string plan_choice::why_no_slots(const planning_task& task) const {
  const call& c = task.what;
  if (std::string why = why_no_boards(options_, task.where); !why.empty()) return why;
  if (task.ranks() > most_slot_ranks)
    return "slots are for at most " + std::to_string(most_slot_ranks) + " ranks, not " + std::to_string(task.ranks());
  if (!knows_all_blocks(c)) return "slots are for blocks whose sizes every rank knows";
  const bool exchange = block_count(c.what, task.ranks()) > 1 && !has_root(c.what);
  const std::size_t bytes = bytes_of_all_blocks(task),
                    most = exchange ? most_exchanged_bytes(task.ranks()) : most_slot_bytes;
  if (bytes <= most) return {};
  return "slots are for at most " + std::to_string(most) + " bytes in all blocks together of " +
         std::to_string(task.ranks()) + " ranks, not " +
         (bytes < std::numeric_limits<std::size_t>::max() ? std::to_string(bytes) : "more than can be counted");
}

namespace {
bool in_place_at_root(const contender& c) { return has_root(c.on.what) && c.on.in_place; }
constexpr const char* root_joins_buffers = "it is for a root in place, whose buffers only the actors bring together";
}  // namespace

void plan_choice::price_slots(contender& c, const planning_task& task) const {
  if (!c.eligible() || c.over_slots[0].priced) return;
  for (contender::slot_way& way : c.over_slots) way.priced = true;
  const bool joins_staged = c.on.in_place && (c.widened || task.rules.scaled);
  const char* why_not = !stages_whole_blocks(c, task)    ? small_staging
                        : in_place_at_root(c)            ? root_joins_buffers
                        : joins_staged                   ? "its score is in place, and inputs are staged apart"
                        : c.lowered->touches_other_ranks ? "it reads or writes other ranks' memory"
                        : c.lowered->uses_l2             ? "it uses memory that ranks share"
                                                         : "";
  if (*why_not != '\0') {
    for (contender::slot_way& way : c.over_slots) way.why_not = why_not;
    return;
  }
  const std::array<double, 2> seconds = seconds_over_slots(c, *c.lowered, task);
  for (std::size_t f = 0; f < seconds.size(); ++f) c.over_slots[f].seconds = seconds[f];
}

/// A message over slots is a few stores and a look; where ranks share cores, somebody else's turn.
std::array<double, 2> plan_choice::seconds_over_slots(const contender& c, const lowered_score& s,
                                                      const planning_task& task) const {
  const std::size_t block = task.largest_block() * size_of(c.work_type);
  const double cell = static_cast<double>(block) / std::max(1, s.notes->parts), staging = staging_bytes(c, task);
  constexpr int no_limit = 64;
  const timing_sheet sheet{*s.notes};
  std::array<double, 2> seconds{};
  for (const slot_format format : {slot_format::ll, slot_format::ll128}) {
    const machine_constants machine =
        costs(task).over_slots(format, task.ranks(), bytes_a_core(task, block), c.work_type);
    seconds[static_cast<std::size_t>(format)] =
        costs(task).slot_operation_seconds() + sheet.predict(cell, cutting{}, no_limit, machine, staging);
  }
  return seconds;
}

void plan_choice::agree_over_slots(contender& c, const planning_task& task) {
  if (c.over_slots[0].lowered || !std::isfinite(c.over_slots[0].seconds)) return;
  if (traits_of(task.what.what).data_tell_all) {
    for (contender::slot_way& way : c.over_slots) way.lowered = c.lowered;
    return;
  }
  const double alone[] = {c.over_slots[0].seconds, c.over_slots[1].seconds};
  c.over_slots.fill({true, never, "no form of agreement fits it", agreement_form::none, nullptr});
  for (const agreement_form form : agreement_forms) {
    const bool direct = form == agreement_form::direct;
    if (direct ? task.ranks() > most_direct_token_ranks : task.ranks() <= 2) continue;
    const auto made = library_.get({c.choreography, c.on, c.rank_order_fold, c.rank_order_fold, form});
    if (!made) continue;
    const std::array<double, 2> seconds = seconds_over_slots(c, *made, task);
    for (std::size_t f = 0; f < seconds.size(); ++f)
      if (seconds[f] < c.over_slots[f].seconds) c.over_slots[f] = {true, seconds[f], {}, form, made};
  }
  if (!may_run_ahead(task)) return;
  // The agreement is made once in so many calls.
  for (std::size_t f = 0; f < c.over_slots.size(); ++f)
    if (contender::slot_way& way = c.over_slots[f]; std::isfinite(way.seconds))
      way.seconds = alone[f] + (way.seconds - alone[f]) / (most_ahead + 1);
}

bool plan_choice::fit_slots(contender& c, slot_format format, const planning_task& task) const {
  contender::slot_way& way = c.over(format);
  const call_shape sizes{task.largest_block(), {}, {}, {}, size_of(c.work_type)};
  if (!way.lowered->verified()->ok()) way.why_not = "the verifier found a fault";
  const std::size_t unit = size_of(unit_of(c.work_type, task.what.reduction.kind));
  const bool fills_lines = format != slot_format::ll128 || slots::ll128_payload % unit == 0;
  if (way.why_not.empty() && fills_lines && surely_fits_slots(*way.lowered->notes, sizes, format)) return true;
  for (rank_t r = 0; r < task.ranks() && way.why_not.empty(); ++r) {
    const program code = compile(*way.lowered->notes, r, sizes, cutting{});
    way.why_not = troupe::why_no_slots(code, format);
    if (way.why_not.empty()) way.why_not = why_torn(code, format, unit);
  }
  if (!way.why_not.empty()) way.seconds = std::numeric_limits<double>::infinity();
  return way.why_not.empty();
}

// -- direct -----------------------------------------------------------------------------------------------------------

namespace {
/// The one who comes last looks at everybody's words.
constexpr int most_direct_ranks = most_slot_ranks;
}  // namespace

std::string plan_choice::why_not_direct(const planning_task& task) const {
  if (std::string why = why_no_boards(options_, task.where); !why.empty()) return why;
  if (const std::string& why = task.where.why_no_buffers(); !why.empty())
    return why + ", and the system forbids to copy from one's to the other's";
  if (task.ranks() < 2) return "a rank alone needs nobody's buffers";
  if (task.ranks() > most_direct_ranks)
    return "at most " + std::to_string(most_direct_ranks) + " ranks meet at the board, not " +
           std::to_string(task.ranks());
  return {};
}

void plan_choice::price_direct(contender& c, const planning_task& task) const {
  c.direct_seconds = never;
  c.why_not_direct.clear();
  if (!c.eligible()) return;
  c.direct_priced = true;
  const bool stages_factors = task.rules.scaled && !c.scales_reads;
  // A barrier's score only brings ranks together, which is what they do at the board.
  const bool alone = !c.lowered->touches_other_ranks && moves_data(task.what.what);
  const auto ranks = static_cast<std::size_t>(task.ranks());
  const bool exchange =
      !task.what.uniform || (task.what.what == collective::all_to_all && bytes_of_all_blocks(task) <= most_slot_bytes);
  const std::size_t most_steps = (exchange ? most_exchange_steps_a_rank : most_steps_a_rank) * ranks;
  const bool long_pass = task.ranks() > few_ranks && c.lowered->single_steps > most_steps;
  if (c.widened || stages_factors || in_place_at_root(c) || alone || long_pass) {
    c.why_not_direct = c.widened             ? "it widens its elements"
                       : stages_factors      ? "it multiplies its inputs before the first pass"
                       : in_place_at_root(c) ? root_joins_buffers
                       : alone               ? "it works on its own memory only"
                                             : "it takes too many steps for so many ranks to be done by a few of them";
    return;
  }
  const call_shape sizes{task.largest_block(), {}, {}, {}, size_of(c.work_type)};
  const std::size_t block_bytes = task.largest_block() * sizes.element_size;
  const bool one_process = task.where.farthest() == reach::process;
  const direct_setting setting{task.what.what, c.on.root, c.on.in_place, !one_process};
  direct_compiler compiler{setting, task.ranks(), c.lowered->steps};
  for (rank_t r = 0; r < task.ranks() && compiler.add(compile(*c.lowered->notes, r, sizes, cutting{})); ++r) {}
  c.why_not_direct = compiler.why_not();
  if (!c.why_not_direct.empty()) return;
  c.direct = std::make_shared<const direct_program>(compiler.finish());
  const direct_program& made = *c.direct;
  // At a root, input and output may be one memory: one pass may read what it writes, several may not.
  const auto passes = [](const direct_program::body& b) { return b.passes.size(); };
  if (reads_what_it_writes(task.what.what, true) && std::ranges::max(made.bodies, {}, passes).passes.size() > 1) {
    c.why_not_direct = "its root takes several passes, which must not read what they have written";
    return;
  }
  c.direct_seconds = costs(task).direct_seconds(made, sizes, bytes_a_core(task, block_bytes), c.work_type,
                                                one_process ? nullptr : &task.where);
  // The same steps without messages are never slower.
  if (one_process) c.direct_seconds = std::min(c.seconds, c.direct_seconds);
}

// -- choosing ---------------------------------------------------------------------------------------------------------

double plan_choice::option::seconds() const {
  return how == message_protocol::simple   ? who->seconds
         : how == message_protocol::direct ? who->direct_seconds
                                           : who->over(format_of(how)).seconds;
}

/// What is known so far; infinite: it cannot.
double plan_choice::known_of(const contender& c, message_protocol how) {
  if (!c.eligible()) return never;
  const double least = c.least[static_cast<std::size_t>(how)];
  if (how == message_protocol::simple) return c.priced ? c.seconds : least;
  if (how == message_protocol::direct) return c.direct_priced ? c.direct_seconds : least;
  return c.over(format_of(how)).priced ? c.over(format_of(how)).seconds : least;
}

plan_choice::option plan_choice::cheapest(std::span<contender* const> all, std::span<const message_protocol> ways,
                                          const planning_task& task) {
  while (true) {
    option first;
    double least = never;
    for (const message_protocol how : ways)
      for (contender* c : all)
        if (const double seconds = known_of(*c, how); seconds < least) first = {c, how}, least = seconds;
    if (first.who == nullptr || refine(first, task)) return first;
  }
}

/// One step nearer to what it really costs. True if nothing is left to find out.
bool plan_choice::refine(const option& o, const planning_task& task) {
  contender& c = *o.who;
  if (!c.counted) return bound(c, task, true), false;
  if (!c.written) return write(c, task), false;
  if (o.how == message_protocol::ll || o.how == message_protocol::ll128) return refine_slots(c, format_of(o.how), task);
  const bool direct = o.how == message_protocol::direct;
  // The same steps without messages are never slower, so its price has that of the actors in it.
  if (!c.priced) return consider(c, task), false;
  if (direct && !c.direct_priced) return price_direct(c, task), false;
  if (!c.settled) return settle(c, task), false;
  if (!direct || c.lowered->verified()->ok()) return true;
  c.direct_seconds = never;
  c.why_not_direct = "the verifier found a fault";
  return false;
}

bool plan_choice::refine_slots(contender& c, slot_format format, const planning_task& task) {
  if (!c.over(format).priced) return price_slots(c, task), false;
  if (!c.settled) return settle(c, task), false;
  if (c.over(format).lowered) return fit_slots(c, format, task);
  agree_over_slots(c, task);
  return false;
}

void plan_choice::settle(contender& c, const planning_task& task) {
  if (c.eligible() && !c.written) write(c, task);
  if (!c.eligible() || c.settled) return;
  const verdict& v = *c.lowered->verified(c.cut.order());
  if (!v.ok()) {
    consider(c, task);  // credits that do not suffice are not the score's fault
    if (!c.eligible()) return;
    c.faulty = !v.first_fault->too_large;
    c.why_rejected =
        (c.faulty ? "the verifier found a fault: " : "it is too large for the verifier: ") + to_string(*v.first_fault);
    return;
  }
  if (task.rules.trees.met_by(v) && same_trees_in_place(c, task, v)) {
    c.settled = true;
    return;
  }
  if (c.rank_order_fold) {
    c.why_rejected = "its contributions cannot be folded in rank order";
    return;
  }
  c.rank_order_fold = true;
  c.lowered.reset();
  shape(c, task);
  // The fold may have torn a single pass apart; then it is staged after all.
  const bool staged = c.widened || (!task.rules.sums_in_f32 && !c.scales_reads);
  if (c.eligible() && !staged && !needs_no_staging(c)) {
    c.lowered.reset();
    prepare_staged(c, task);
  }
}

/// Whether a call is in place must not show in the bits either, as little as its size.
bool plan_choice::same_trees_in_place(const contender& c, const planning_task& task, const verdict& v) {
  if (!task.rules.trees.same_everywhere || task.rules.trees.left_fold || c.rank_order_fold) return true;
  // Where both kinds of call are staged, they are performed alike.
  const bool always_staged = task.rules.scaled && !c.scales_reads;
  setup other = c.on;
  other.in_place = !other.in_place;
  if (always_staged || !agrees_on_place(other.what, other.uniform) || !library_.refusal(c.choreography, other).empty())
    return true;
  const bool split = !task.what.uniform || c.cut != cutting{};
  const verdict& w = *library_.get({c.choreography, other, split, false})->verified(c.cut.order());
  if (!w.ok() || !task.rules.trees.met_by(w)) return false;
  for (rank_t r = 0; r < other.ranks; ++r)
    if (tree_of(v, r, 0) != tree_of(w, r, 0)) return false;
  return true;
}

}  // namespace troupe
