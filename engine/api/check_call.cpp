// SPDX-License-Identifier: Apache-2.0
// Everything that can be wrong with a call on one rank alone.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/in_place.hpp"

namespace troupe {

namespace {

constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();

std::string name_of(const call_description& d) {
  if (d.pair) return d.sending ? "send" : "recv";
  return std::string{name(d.what.what)} + (d.what.uniform ? "" : "_v");
}

[[noreturn]] void refuse(const call_description& d, errc code, const std::string& sentence) {
  throw error(code, name_of(d) + ": " + sentence);
}

/// A stretch of the caller's memory.
struct region {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  bool overlaps(const region& other) const {
    return bytes > 0 && other.bytes > 0 && std::less<>{}(begin, other.begin + other.bytes) &&
           std::less<>{}(other.begin, begin + bytes);
  }
};

/// Only the root knows all counts for sure; another rank keeps its own.
void keep_only(call_description& d, std::size_t own) {
  d.what.counts.assign(1, own);
  d.input_displacements.clear();
  d.output_displacements.clear();
}

class checker {
public:
  checker(call_description& d, rank_t rank, int ranks)
      : d_(d), c_(d.what), rank_(rank), ranks_(static_cast<std::size_t>(ranks)) {}

  void run() {
    check_enumerators();
    if (d_.pair || has_root(c_.what)) check_ranks();
    check_tag();
    if (is_reduction(c_.what)) check_supported(c_.type, c_.reduction);
    if (!d_.pair) infer_count();
    if (!c_.uniform) check_counts();
    if (!d_.pair) check_collective();
    else check_pair();
  }

private:
  void check_enumerators() {
    const auto check = [&](auto value, auto last, const char* what) {
      if (value > last)
        refuse(d_, errc::invalid_argument,
               std::to_string(static_cast<unsigned>(value)) + " is not one of troupe::" + what);
    };
    if (size_of(c_.type) == 0) refuse(d_, errc::invalid_argument, "unknown element type");
    check(d_.options.agreement, agreement_time::eager, "agreement_time");
    check(d_.options.level.value_or(determinism::fast), determinism::topology_stable, "determinism");
    check(d_.options.protocol, message_protocol::nic, "message_protocol");
    if (d_.options.protocol == message_protocol::nic)
      refuse(d_, errc::unsupported,
             "a call cannot ask for protocol nic; the engine decides what a NIC performs (engine_options::offload)");
  }

  void check_ranks() {
    const auto within = [&](rank_t r) { return r >= 0 && static_cast<std::size_t>(r) < ranks_; };
    const auto none = [&] { return " is not a rank of this communicator (0 … " + std::to_string(ranks_ - 1) + ")"; };
    if (d_.pair && !within(d_.peer) && d_.peer != proc_null)
      refuse(d_, errc::invalid_argument, "peer " + std::to_string(d_.peer) + none());
    if (has_root(c_.what) && !d_.pair && !within(c_.root))
      refuse(d_, errc::bad_root, "root " + std::to_string(c_.root) + none());
  }

  void check_tag() {
    const int tag = d_.options.tag;
    if (tag != 0 && !d_.pair)
      refuse(d_, errc::invalid_argument,
             "has a tag, which is for sends and receives; collectives match by their order");
    if (tag < 0 || tag > most_tag)
      refuse(d_, errc::invalid_argument,
             "tag " + std::to_string(tag) + " is not between 0 and " + std::to_string(most_tag));
  }

  /// all_to_all on ranges: their size says the count.
  void infer_count() {
    if (traits_of(c_.what).v != v_counts::every_pair || !c_.uniform || d_.input_limit == unknown) return;
    if (d_.input_limit != d_.output_limit || d_.input_limit % (ranks_ * d_.object_elements) != 0)
      refuse(d_, errc::invalid_argument,
             "input (" + std::to_string(d_.input_limit) + " elements) and output (" + std::to_string(d_.output_limit) +
                 ") must both have the same multiple of " + std::to_string(ranks_) + " elements, one block per rank");
    c_.count = d_.input_limit / ranks_;
  }

  std::size_t multiply(std::size_t a, std::size_t b) const {
    std::size_t result = 0;
    if (__builtin_mul_overflow(a, b, &result) || result > unknown / 4)
      refuse(d_, errc::size_overflow, std::to_string(a) + " × " + std::to_string(b) + " exceeds the address space");
    return result;
  }

  void check_counts() {
    const bool at_root = !has_root(c_.what) || c_.root == rank_;
    if (c_.counts.size() != ranks_ && (at_root || c_.counts.size() != 1))
      refuse(d_, errc::invalid_argument,
             "needs one count per rank (" + std::to_string(ranks_) + "), not " + std::to_string(c_.counts.size()));
    if (traits_of(c_.what).v == v_counts::every_pair && c_.receive_counts.size() != ranks_)
      refuse(d_, errc::invalid_argument,
             "needs one receive count per rank (" + std::to_string(ranks_) + "), not " +
                 std::to_string(c_.receive_counts.size()));
    for (const auto* list : {&d_.input_displacements, &d_.output_displacements})
      if (!list->empty() && list->size() != ranks_ && at_root)
        refuse(d_, errc::invalid_argument,
               "needs one displacement per rank (" + std::to_string(ranks_) + "), not " + std::to_string(list->size()));
    if (traits_of(c_.what).v == v_counts::rooted) check_own_count(at_root);
  }

  /// gather_v, scatter_v: a rank names its own count, and the root, or who likes to, a list of all.
  void check_own_count(bool at_root) {
    const std::size_t named = traits_of(c_.what).root == root_role::sink ? d_.input_limit : d_.output_limit;
    const std::size_t listed = c_.counts.size() == 1 ? c_.counts[0] : c_.counts[static_cast<std::size_t>(rank_)];
    if (named != unknown && named != listed)
      refuse(d_, errc::invalid_argument,
             "this rank's count is " + std::to_string(named) + " but the list of all ranks' counts says " +
                 std::to_string(listed));
    if (!at_root) keep_only(d_, listed);
  }

  /// Elements from the buffer's begin to the end of its last block.
  std::size_t extent(bool input) {
    const block_run run = blocks_of(input);
    if (run.count == 0) return 0;
    if (c_.uniform) return multiply(c_.count, static_cast<std::size_t>(run.count));
    const auto& displacements = input ? d_.input_displacements : d_.output_displacements;
    std::size_t end = 0;
    for (int i = 0; i < run.count; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const std::size_t length = count_of_block(input, index, run.count);
      const std::size_t begin = displacements.empty() ? end : displacements[index];
      if (begin > unknown / 4 || length > unknown / 4)
        refuse(d_, errc::size_overflow, "counts or displacements exceed the address space");
      end = std::max(end, begin + length);
    }
    if (!displacements.empty() && !input) check_blocks_apart(false, displacements, run.count);
    return end;
  }

  std::size_t count_of_block(bool input, std::size_t index, int blocks) const {
    if (traits_of(c_.what).v == v_counts::every_pair) return input ? c_.counts[index] : c_.receive_counts[index];
    if (blocks == 1) return c_.counts.size() == 1 ? c_.counts[0] : c_.counts[static_cast<std::size_t>(rank_)];
    return c_.counts[index];
  }

  void check_blocks_apart(bool input, const std::vector<std::size_t>& begins, int blocks) {
    std::vector<std::size_t> order(static_cast<std::size_t>(blocks));
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return begins[a] < begins[b]; });
    std::size_t end = 0;
    std::size_t before = 0;
    for (const std::size_t i : order) {
      const std::size_t length = count_of_block(input, i, blocks);
      if (length > 0 && begins[i] < end)
        refuse(d_, errc::buffers_overlap,
               std::string{input ? "the call is in place, but the input" : "the output"} + " blocks of ranks " +
                   std::to_string(before) + " and " + std::to_string(i) + " overlap");
      if (length > 0) {
        end = begins[i] + length;
        before = i;
      }
    }
  }

  void check_buffer(const char* which, const void* p, std::size_t elements, std::size_t limit) {
    if (elements > 0 && p == nullptr)
      refuse(d_, errc::null_buffer, std::string{which} + " is null but has " + std::to_string(elements) + " elements");
    if (elements > limit)
      refuse(d_, errc::invalid_argument,
             std::string{which} + " has " + std::to_string(limit) + " elements but the call needs " +
                 std::to_string(elements));
  }

  void check_pair() {
    multiply(c_.count, size_of(c_.type));
    check_buffer(d_.sending ? "data to send" : "buffer to receive", d_.sending ? d_.input : d_.output, c_.count,
                 unknown);
  }

  void check_collective() {
    const std::size_t size = size_of(c_.type);
    if (c_.uniform)
      multiply(multiply(c_.count, size),
               std::max(ranks_, static_cast<std::size_t>(block_count(c_.what, static_cast<int>(ranks_)))));
    const std::size_t in = extent(true), out = extent(false);
    multiply(in, size);
    multiply(out, size);
    if (c_.what == collective::all_reduce && c_.uniform && d_.input_limit != unknown &&
        d_.input_limit != d_.output_limit)
      refuse(d_, errc::invalid_argument,
             "input and output must have the same size, not " + std::to_string(d_.input_limit) + " and " +
                 std::to_string(d_.output_limit));
    check_buffer("input", d_.input, in, d_.input_limit);
    check_buffer("output", d_.output, out, d_.output_limit);
    check_overlap({static_cast<const std::byte*>(d_.input), in * size},
                  {static_cast<const std::byte*>(d_.output), out * size});
  }

  block_run blocks_of(bool input) const {
    return input ? input_blocks(c_.what, static_cast<int>(ranks_), c_.root, rank_)
                 : output_blocks(c_.what, static_cast<int>(ranks_), c_.root, rank_);
  }

  bool lies_in_place() const {
    own_blocks own{.inputs = blocks_of(true).count,
                   .outputs = blocks_of(false).count,
                   .own = static_cast<std::size_t>(rank_),
                   .count = c_.count,
                   .input_displacements = d_.input_displacements,
                   .output_displacements = d_.output_displacements};
    if (!c_.uniform) own.counts = c_.counts;
    return troupe::lies_in_place(own, d_.input, d_.output, size_of(c_.type));
  }

  void check_overlap(const region& in, const region& out) {
    const bool all_ranks = agrees_on_place(c_.what, c_.uniform) && (c_.uniform || !has_empty_block(c_.counts));
    if (in.bytes == 0 && out.bytes == 0) return;  // whatever the pointers: nothing can be in place
    if (in.bytes == 0 || out.bytes == 0) {        // an exscan's first rank
      c_.in_place = all_ranks && d_.input != nullptr && lies_in_place();
      return;
    }
    if (!in.overlaps(out)) return;
    if (lies_in_place()) {
      c_.in_place = all_ranks;
      // The input is written too, or its own block at least; blocks that share memory with that one would change.
      if (!d_.input_displacements.empty() && c_.what != collective::all_to_all)
        check_blocks_apart(true, d_.input_displacements,
                           input_blocks(c_.what, static_cast<int>(ranks_), c_.root, rank_).count);
      return;
    }
    refuse(
        d_, errc::buffers_overlap,
        "input and output overlap; they must be apart, or in place (the same buffer, or the rank's own block of it)");
  }

  call_description& d_;
  call& c_;
  rank_t rank_;
  std::size_t ranks_;
};

/// Looks at lists once, from the first block to the last, and gives up where that does not suffice.
class list_reader {
public:
  list_reader(listed_call& found, rank_t rank, int ranks)
      : of_(traits_of(found.what)), rank_(rank), ranks_(static_cast<std::size_t>(ranks)), found_(found) {}
  list_reader(const list_reader&) = delete;
  list_reader& operator=(const list_reader&) = delete;

  bool read() {
    const std::size_t size = size_of(found_.type);
    if (size == 0 || of_.v == v_counts::none || !keep_own()) return false;
    if (of_.v == v_counts::rooted && found_.root != rank_) return has_room_for_own();
    if (!has_lists()) return false;
    ins_ = of_.input(static_cast<int>(ranks_), found_.root, rank_).count;
    outs_ = of_.output(static_cast<int>(ranks_), found_.root, rank_).count;
    const auto& received = of_.v == v_counts::every_pair ? found_.receive_counts : found_.counts;
    const std::size_t in = end_of(ins_, found_.counts, found_.input_displacements);
    const std::size_t out = end_of(outs_, received, found_.output_displacements);
    if (in > std::min(found_.input_limit, too_much) || out > std::min(found_.output_limit, too_much)) return false;
    if ((in > 0 && found_.input == nullptr) || (out > 0 && found_.output == nullptr)) return false;
    return find_place(in * size, out * size);
  }

private:
  static constexpr std::size_t too_much = std::size_t{1} << 48;  ///< elements; in bytes still no overflow

  /// In a rooted one a rank that is not the root keeps its own count.
  bool keep_own() {
    if (of_.root == root_role::none) return true;
    if (found_.root < 0 || static_cast<std::size_t>(found_.root) >= ranks_) return false;
    if (of_.v != v_counts::rooted) return true;
    const std::span<const std::size_t> counts = found_.counts;
    if (counts.size() != ranks_ && (counts.size() != 1 || found_.root == rank_)) return false;
    const std::size_t own = counts.size() == 1 ? 0 : static_cast<std::size_t>(rank_);
    const std::size_t named = of_.root == root_role::sink ? found_.input_limit : found_.output_limit;
    if (named != unknown && named != counts[own]) return false;
    if (found_.root == rank_) return true;
    found_.counts = counts.subspan(own, 1);
    found_.input_displacements = found_.output_displacements = {};
    return true;
  }

  /// Of the only buffer there is. @pre keep_own()
  bool has_room_for_own() const {
    const bool gives = of_.root == root_role::sink;
    const std::size_t own = found_.counts[0], limit = gives ? found_.input_limit : found_.output_limit;
    return own <= std::min(limit, too_much) && (own == 0 || (gives ? found_.input : found_.output) != nullptr);
  }

  bool has_lists() const {
    const auto fits = [&](std::span<const std::size_t> list) { return list.empty() || list.size() == ranks_; };
    return found_.counts.size() == ranks_ && fits(found_.input_displacements) && fits(found_.output_displacements) &&
           (of_.v != v_counts::every_pair || found_.receive_counts.size() == ranks_);
  }

  /// Elements from the buffer's begin to the end of its last block. More than too_much: that, or blocks that may overlap since they come in
  /// another order.
  std::size_t end_of(std::int64_t blocks, std::span<const std::size_t> lengths,
                     std::span<const std::size_t> displacements) const {
    constexpr std::size_t none = too_much + 1;
    if (blocks == 0) return 0;
    // Its only block, of a list of all.
    if (blocks == 1 && lengths.size() > 1)
      return displacements.empty() ? lengths[static_cast<std::size_t>(rank_)] : none;
    std::size_t end = 0;
    if (displacements.empty()) {
      for (const std::size_t n : lengths) {
        if (n > too_much - end) return none;
        end += n;
      }
      return end;
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::size_t begin = displacements[i];
      if (begin < end || begin > too_much || lengths[i] > too_much - begin) return none;
      end = begin + lengths[i];
    }
    return end;
  }

  /// False: the buffers overlap, and not as those of a call in place.
  bool find_place(std::size_t in_bytes, std::size_t out_bytes) {
    const region in{static_cast<const std::byte*>(found_.input), in_bytes},
        out{static_cast<const std::byte*>(found_.output), out_bytes};
    if (in.overlaps(out)) {
      found_.in_place = agrees_on_place(found_.what, false) && !has_empty_block(found_.counts);
      return lies_in_place({.inputs = ins_,
                            .outputs = outs_,
                            .own = static_cast<std::size_t>(rank_),
                            .counts = found_.counts,
                            .input_displacements = found_.input_displacements,
                            .output_displacements = found_.output_displacements},
                           found_.input, found_.output, size_of(found_.type));
    }
    found_.in_place = false;
    return true;
  }

  const collective_traits& of_;
  rank_t rank_;
  std::size_t ranks_;
  int ins_ = 0, outs_ = 0;  ///< blocks
  listed_call& found_;
};

}  // namespace

bool look_at_lists(listed_call& what, rank_t rank, int ranks) { return list_reader(what, rank, ranks).read(); }

std::optional<std::size_t> only_block_of(const listed_call& c) {
  const collective_traits& of = traits_of(c.what);
  if (of.v == v_counts::none || c.root != 0 || c.counts.size() != 1 || !c.input_displacements.empty() ||
      !c.output_displacements.empty())
    return std::nullopt;
  const std::size_t count = c.counts[0];
  const auto fits = [&](std::size_t limit, bool exactly) {
    return limit == plain_call::unknown || (exactly ? limit == count : limit >= count);
  };
  const bool rooted = of.v == v_counts::rooted,
             same = of.v != v_counts::every_pair || (c.receive_counts.size() == 1 && c.receive_counts[0] == count);
  if (!same || !fits(c.input_limit, rooted && of.root == root_role::sink) ||
      !fits(c.output_limit, rooted && of.root == root_role::source))
    return std::nullopt;
  return count;
}

namespace {
/// A v-form's only block is as large as itself. False: it stays as it is.
bool make_uniform(call_description& d) {
  const auto count = only_block_of(listed_call{d});
  if (!count) return false;
  d.what.uniform = true;
  d.what.count = *count;
  d.what.counts.clear();
  d.what.receive_counts.clear();
  d.input_limit = d.output_limit = unknown;
  return true;
}
}  // namespace

void check_call(call_description& what, rank_t rank, int ranks) {
  if (what.what.outcome_of) return;
  checker(what, rank, ranks).run();
  if (ranks == 1 && !what.pair && !what.what.uniform && make_uniform(what)) checker(what, rank, ranks).run();
}

}  // namespace troupe
