// SPDX-License-Identifier: Apache-2.0
#include "protocols/offload/packed_programs.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace troupe::offload {

namespace {

struct list_head {
  std::uint64_t magic, ranks;
};
constexpr std::uint64_t magic = 0x31736d6172676f72;  // "rograms1"
/// A limit, so that sums of sizes do not wrap: 1 TiB.
constexpr std::size_t most_scratch_bytes = std::size_t{1} << 40;

struct program_head {
  rank_t rank;
  endpoint at;
  std::uint64_t sequences, awaited, element_size, scratch_bytes;
  int credits;
};
struct sequence_head {
  std::uint64_t descriptors;
  std::uint16_t port;
};

class writer {
public:
  template <class T>
  void add(const T& what) {
    add_all(std::span<const T>(&what, 1));
  }
  template <class T>
  void add_all(std::span<const T> what) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = std::as_bytes(what);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> all;
};

class reader {
public:
  explicit reader(std::span<const std::byte> from) : rest_(from) {}
  template <class T>
  bool take(T& into) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (rest_.size() < sizeof(T)) return false;
    std::memcpy(&into, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return true;
  }
  /// Nothing is made that is not there.
  template <class T>
  bool take_all(std::vector<T>& into, std::uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > rest_.size() / sizeof(T)) return false;
    into.resize(count);
    if (count > 0) std::memcpy(into.data(), rest_.data(), count * sizeof(T));
    rest_ = rest_.subspan(count * sizeof(T));
    return true;
  }
  bool at_end() const { return rest_.empty(); }

private:
  std::span<const std::byte> rest_;
};

constexpr std::array all_flags{&descriptor::collective,
                               &descriptor::head,
                               &descriptor::tail,
                               &descriptor::triggers,
                               &descriptor::swap_local_data,
                               &descriptor::swap_local_port,
                               &descriptor::swap_remote_data,
                               &descriptor::swap_remote_address,
                               &descriptor::reduce,
                               &descriptor::collective_end,
                               &descriptor::reduced_there,
                               &descriptor::swapped};

/// Of what others have written a flag may be any byte, and only two are a bool's.
bool is_flag(const bool& where) {
  static_assert(sizeof(bool) == 1);
  unsigned char byte = 0;
  std::memcpy(&byte, &where, 1);
  return byte <= 1;
}

bool take_sequence(reader& from, const rank_program& of, sequence& into) {
  sequence_head h{};
  if (!from.take(h) || !from.take_all(into.descriptors, h.descriptors) || into.descriptors.empty()) return false;
  into.port = h.port;
  for (const descriptor& d : into.descriptors)
    if (!std::ranges::all_of(all_flags, [&](bool descriptor::*flag) { return is_flag(d.*flag); }) ||
        d.awaited > of.awaited.size() || d.count > of.awaited.size() - d.awaited || d.own.buffer > buffer_kind::l2 ||
        d.target.buffer > buffer_kind::l2)
      return false;
  return into.descriptors.front().head && into.descriptors.back().tail;
}

bool take_program(reader& from, rank_program& into) {
  program_head h{};
  if (!from.take(h) || !from.take_all(into.awaited, h.awaited) || h.sequences > most_ports || h.element_size == 0)
    return false;
  if (!std::ranges::all_of(into.awaited, [](const awaited_message& m) { return is_flag(m.swapped); })) return false;
  into.rank = h.rank;
  into.at = h.at;
  into.element_size = h.element_size;
  into.scratch_bytes = h.scratch_bytes;
  into.credits = h.credits;
  for (std::uint64_t s = 0; s < h.sequences; ++s)
    if (!take_sequence(from, into, into.sequences.emplace_back())) return false;
  return true;
}

}  // namespace

std::vector<std::byte> pack(std::span<const rank_program> all) {
  writer w;
  w.add(list_head{magic, all.size()});
  for (const rank_program& p : all) {
    w.add(program_head{p.rank, p.at, p.sequences.size(), p.awaited.size(), p.element_size, p.scratch_bytes, p.credits});
    w.add_all(std::span{p.awaited});
    for (const sequence& s : p.sequences) {
      w.add(sequence_head{s.descriptors.size(), s.port});
      w.add_all(std::span{s.descriptors});
    }
  }
  return std::move(w.all);
}

std::optional<std::vector<rank_program>> unpack(std::span<const std::byte> from) {
  reader r{from};
  list_head h{};
  if (!r.take(h) || h.magic != magic || h.ranks > from.size()) return std::nullopt;
  std::vector<rank_program> all;
  for (std::uint64_t k = 0; k < h.ranks; ++k)
    if (!take_program(r, all.emplace_back()) || all.back().rank != static_cast<rank_t>(k)) return std::nullopt;
  if (!r.at_end()) return std::nullopt;
  return all;
}

std::string why_not_within(const rank_program& what, std::size_t input_bytes, std::size_t output_bytes) {
  if (what.scratch_bytes > most_scratch_bytes)
    return "its descriptors need " + std::to_string(what.scratch_bytes) + " bytes of scratch";
  const auto room = [&](buffer_kind buffer) {
    return buffer == buffer_kind::input    ? input_bytes
           : buffer == buffer_kind::output ? output_bytes
                                           : what.scratch_bytes;
  };
  const auto fits = [&](const descriptor& d, const operand& o) {
    if (o.buffer == buffer_kind::none || d.elements == 0) return true;
    if (o.buffer > buffer_kind::scratch) return false;
    const std::size_t all = room(o.buffer);
    return o.offset <= all && d.elements <= (all - o.offset) / what.element_size;
  };
  for (const sequence& s : what.sequences)
    for (const descriptor& d : s.descriptors)
      if (!fits(d, d.own) || !fits(d, d.target))
        return "a descriptor of port " + std::to_string(s.port) + " reaches beyond the rank's buffers";
  return {};
}

}  // namespace troupe::offload
