// SPDX-License-Identifier: Apache-2.0
// Moves of rows in an exchange, and sums.

#include <algorithm>
#include <array>
#include <cstring>

#include "actors/ports/segment/board_memory.hpp"
#include "engine/experts/expert_inside.hpp"
#include "engine/experts/scaled_rows.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

constexpr std::uint32_t none = ~std::uint32_t{0};

std::uint64_t address(const void* of) { return reinterpret_cast<std::uint64_t>(of); }

/// In f32, always in the same order.
float product(datatype type, const std::byte* a, const std::byte* b, std::size_t count) {
  constexpr std::size_t tile = 512, lanes = 16;
  alignas(64) float left[tile], right[tile], sums[lanes] = {};
  for (std::size_t begin = 0; begin < count; begin += tile) {
    const std::size_t here = std::min(tile, count - begin);
    convert(type, a + begin * size_of(type), datatype::f32, left, here);
    convert(type, b + begin * size_of(type), datatype::f32, right, here);
    std::size_t i = 0;
    for (; i + lanes <= here; i += lanes)
      for (std::size_t l = 0; l < lanes; ++l) sums[l] += left[i + l] * right[i + l];
    for (std::size_t l = 0; i < here; ++i, ++l) sums[l] += left[i] * right[i];
  }
  for (std::size_t step = lanes / 2; step > 0; step /= 2)
    for (std::size_t l = 0; l < step; ++l) sums[l] += sums[l + step];
  return sums[0];
}

/// The sum of `in`, each times its factor, rounded once.
void sum_rows(datatype type, std::span<const std::byte* const> in, std::span<const double> factors, std::byte* to,
              std::size_t count, store_hint stores) {
  if (in.empty()) {
    std::memset(to, 0, count * size_of(type));
    return;
  }
  const bool ones = std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
  if (ones && in.size() == 1) return troupe::copy(to, in[0], count * size_of(type), stores);
  std::array<const void*, expert_options::most_top_k> from{};
  void* const out[1] = {to};
  // A sum of many rows on both sides of the proxies has at most as many as a token has experts.
  std::copy(in.begin(), in.end(), from.begin());
  sum_scaling scaling;
  if (!ones) scaling.factors = factors.data();
  reduce_many(type, troupe::sum, {from.data(), in.size()}, out, count, stores, scaling);
}

}  // namespace

// -- what a rank shows ----------------------------------------------------------------------------------------------------

void expert_exchange::inside::show_tokens(const std::byte* tokens) {
  const std::size_t bytes = tokens_ * token_bytes_;
  expert_shown::stream& own = mine().streams[rank_];
  own.lists = address(lists_.get());
  if (options_.transport == expert_transport::exact) {
    if (tokens_ > 0 && tokens == spare_tokens_.get()) {
      tokens_shown_.swap(spare_tokens_);
    } else if (members().size() == 1) {
      own.rows = address(tokens);  // nobody else reads them
      return;
    } else {
      troupe::copy(tokens_shown_.grow(bytes), tokens, bytes);
    }
  } else {
    std::byte* const to = tokens_shown_.grow(bytes);
    for (std::size_t t = 0; t < tokens_; ++t)
      scaled_rows::encode(options_.type, tokens + t * result_bytes(), to + t * token_bytes_, options_.hidden);
  }
  own.rows = address(tokens_shown_.get());
}

void expert_exchange::inside::show_gradients(const std::byte* gradient) {
  expert_shown::stream& own = mine().streams[rank_];
  own.lists = address(lists_.get());
  own.rows = address(gradient);
  if (members().size() == 1) return;
  std::byte* const to = tokens_shown_.grow(tokens_ * result_bytes());
  troupe::copy(to, gradient, tokens_ * result_bytes());
  own.rows = address(to);
}

/// A copy, unless they lie where all may read.
const std::byte* expert_exchange::inside::shared_results(const std::byte* rows, std::size_t bytes) {
  if (members().size() == 1 || rows_.holds(rows) || gradient_rows_.holds(rows)) return rows;
  std::byte* const to = results_.grow(bytes);
  troupe::copy(to, rows, bytes);
  return to;
}

// -- between domains ------------------------------------------------------------------------------------------------------

void expert_exchange::inside::exchange_blocks(const lasting_buffer& out, std::span<const std::size_t> sizes,
                                              lasting_buffer& in, std::span<const std::size_t> coming) {
  std::size_t all = 0;
  for (const std::size_t bytes : coming) all += bytes;
  in.grow(std::max(all, line));
  comm_.run(calls::all_to_all_v(out.get(), block_list{{sizes.begin(), sizes.end()}}, in.get(),
                                block_list{{coming.begin(), coming.end()}}, datatype::u8, how_to_call()));
}

/// What other domains need of the tokens, behind its lists.
void expert_exchange::inside::pack_tokens(const std::byte* tokens) {
  for (std::size_t d = 0; d < replicas_.domains.size(); ++d) {
    if (rows_there_[d] == 0) continue;
    std::byte* to = outgoing_.get() + begins_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))] +
                    lists_bytes(replicas_.replicas_of_domain[d], entries_there_[d]);
    for (std::size_t t = 0; t < tokens_; ++t) {
      if (row_there_[d * tokens_ + t] == none) continue;
      const std::byte* const from = tokens + t * result_bytes();
      if (options_.transport == expert_transport::exact) troupe::copy(to, from, token_bytes_);
      else scaled_rows::encode(options_.type, from, to, options_.hidden);
      to += token_bytes_;
    }
  }
}

/// Sends that, and shows what has come for this domain.
void expert_exchange::inside::send_tokens(const std::byte* tokens, const std::string& wrong) {
  const auto n = static_cast<std::size_t>(ranks_);
  words_.resize(2 * n);  // of each rank: the round's word, and how many bytes follow
  for (std::size_t r = 0; r < n; ++r) {
    words_[2 * r] = call_word() | (wrong.empty() ? 0 : refuses);
    words_[2 * r + 1] = sizes_[r];
  }
  came_words_.resize(2 * n);
  comm_.all_to_all(words_, came_words_, how_to_call());
  coming_.resize(n);
  for (std::size_t r = 0; r < n; ++r) {
    all_words_[r] = came_words_[2 * r];
    coming_[r] = came_words_[2 * r + 1];
  }
  check_words(wrong);
  pack_tokens(tokens);
  exchange_blocks(outgoing_, sizes_, incoming_, coming_);
  came_begins_.resize(n);
  rows_from_.assign(n, 0);
  std::size_t at = 0;
  for (std::size_t s = 0; s < n; ++s) {
    came_begins_[s] = at;
    expert_shown::stream& shown = mine().streams[s];
    if (static_cast<rank_t>(s) != rank_) shown = {};
    if (coming_[s] > 0) {
      const std::byte* const block = incoming_.get() + at;
      std::uint32_t head[2];
      std::memcpy(head, block, sizeof head);
      rows_from_[s] = head[0];
      shown.lists = address(block + sizeof head);
      shown.rows = address(block + lists_bytes(domain_replicas(), head[1]));
    }
    at += coming_[s];
  }
}

/// The gradients of what was sent so: rows alone, since the lists are there.
void expert_exchange::inside::pack_gradients(const std::byte* gradient) {
  const auto n = static_cast<std::size_t>(ranks_);
  sizes_.assign(n, 0);
  std::size_t all = 0;
  for (std::size_t d = 0; d < replicas_.domains.size(); ++d)
    if (rows_there_[d] > 0)
      all += sizes_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))] =
          in_lines(rows_there_[d] * result_bytes());
  std::byte* const out = gradients_out_.grow(std::max(all, line));
  begins_.resize(n);
  for (std::size_t r = 0, at = 0; r < n; at += sizes_[r++]) begins_[r] = at;
  for (std::size_t d = 0; d < replicas_.domains.size(); ++d) {
    if (rows_there_[d] == 0) continue;
    std::byte* const to = out + begins_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))];
    for (std::size_t t = 0; t < tokens_; ++t)
      if (const std::uint32_t row = row_there_[d * tokens_ + t]; row != none)
        troupe::copy(to + row * result_bytes(), gradient + t * result_bytes(), result_bytes());
  }
}

/// They go the same way.
void expert_exchange::inside::send_gradients(const std::byte* gradient) {
  const auto n = static_cast<std::size_t>(ranks_);
  pack_gradients(gradient);
  coming_.assign(n, 0);
  for (std::size_t s = 0; s < n; ++s) coming_[s] = in_lines(rows_from_[s] * result_bytes());
  exchange_blocks(gradients_out_, sizes_, gradients_in_, coming_);
  std::size_t at = 0;
  for (std::size_t s = 0; s < n; at += coming_[s++])
    if (rows_from_[s] > 0) mine().streams[s].rows = address(gradients_in_.get() + at);
}

// -- what a rank takes ----------------------------------------------------------------------------------------------------

/// By source: its lists and rows, where there are some.
void expert_exchange::inside::find_streams() {
  for (rank_t s = 0; s < ranks_; ++s) {
    const rank_t from = taker(s);
    const expert_shown::stream shown_here = shown(from).streams[s];
    const auto at = static_cast<std::size_t>(s);
    lists_of_[at] = {};
    rows_of_[at] = nullptr;
    if (shown_here.lists == 0) continue;
    lists_of_[at] = {found<std::byte>(from, shown_here.lists), domain_replicas()};
    if (lists_of_[at].begins[domain_replicas()] > 0) rows_of_[at] = found<std::byte>(from, shown_here.rows);
  }
}

/// Where the tokens of each source for each own expert will be; shown to those who fetch the results. Returns how many there are.
std::size_t expert_exchange::inside::lay_out() {
  const std::uint32_t first = replicas_.first[static_cast<std::size_t>(rank_)];
  const auto n = static_cast<std::size_t>(ranks_);
  auto* const bases = reinterpret_cast<std::uint32_t*>(bases_.grow(own_experts_.size() * n * sizeof(std::uint32_t)));
  std::size_t row = 0;
  for (std::size_t e = 0; e < own_experts_.size(); ++e) {
    const std::uint32_t place = replicas_.in_domain[first + e];
    const std::size_t before = row;
    for (std::size_t s = 0; s < n; ++s) {
      bases[e * n + s] = static_cast<std::uint32_t>(row);
      if (rows_of_[s] != nullptr) row += lists_of_[s].begins[place + 1] - lists_of_[s].begins[place];
    }
    counts_[e] = row - before;
  }
  if (row >= none) throw error(errc::size_overflow, "expert_exchange: " + std::to_string(row) + " tokens for one rank");
  mine().bases = address(bases);
  return row;
}

/// take(row of the stream, its weight, place in the result, came_row), for all that came for this rank's experts. Ranks begin with
/// themselves, then go on with the next: so no two begin with the same one.
template <class Take>
void expert_exchange::inside::take_each(std::size_t row_bytes, Take&& take) {
  const auto* const bases = bases_.as<std::uint32_t>();
  const auto n = static_cast<std::size_t>(ranks_);
  const std::uint32_t first = replicas_.first[static_cast<std::size_t>(rank_)];
  for (std::size_t step = 0; step < n; ++step) {
    const std::size_t s = (static_cast<std::size_t>(rank_) + step) % n;
    if (rows_of_[s] == nullptr) continue;
    const entry_lists& lists = lists_of_[s];
    for (std::size_t e = 0; e < own_experts_.size(); ++e) {
      const std::uint32_t place = replicas_.in_domain[first + e];
      const std::size_t base = bases[e * n + s], count = lists.begins[place + 1] - lists.begins[place];
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t entry = lists.begins[place] + i;
        take(rows_of_[s] + lists.rows[entry] * row_bytes, lists.weights[entry], base + i, came_row{s, e, i});
      }
    }
  }
}

void expert_exchange::inside::take_row(const std::byte* from, std::byte* to, store_hint stores) const {
  if (options_.transport == expert_transport::exact) troupe::copy(to, from, token_bytes_, stores);
  else scaled_rows::decode(options_.type, from, to, options_.hidden);
}

void expert_exchange::inside::take_tokens() {
  const std::size_t bytes = received_ * result_bytes();
  std::byte* const to = rows_.grow(bytes);
  const store_hint stores = stores_of(bytes);
  take_each(token_bytes_, [&](const std::byte* from, float, std::size_t at, const came_row&) {
    take_row(from, to + at * result_bytes(), stores);
  });
}

/// The gradient of a result is that of the sum times the weight. Returns that of the weight: the product with the result.
float expert_exchange::inside::take_gradient(const std::byte* from, float weight, const std::byte* result,
                                             std::byte* to) const {
  const float of_weight = product(options_.type, from, result, options_.hidden);
  scale(options_.type, weight, from, to, options_.hidden);
  return of_weight;
}

void expert_exchange::inside::take_gradients(const std::byte* results) {
  const std::size_t row_bytes = result_bytes();
  std::byte* const to = gradient_rows_.grow(received_ * row_bytes);
  auto* const products = products_.as<float>();
  take_each(row_bytes, [&](const std::byte* from, float weight, std::size_t at, const came_row& which) {
    const std::byte* const result = in_parts_ ? part_row(which) : results + at * row_bytes;
    products[at] = take_gradient(from, weight, result, to + at * row_bytes);
  });
}

// -- what a rank sums -----------------------------------------------------------------------------------------------------

void expert_exchange::inside::find_results() {
  for (const rank_t r : members()) {
    const expert_shown& its = shown(r);
    const auto at = static_cast<std::size_t>(r);
    bases_of_[at] = nullptr;
    results_of_[at] = nullptr;
    if (replicas_.replicas_at(r) == 0) continue;
    bases_of_[at] = found<std::uint32_t>(r, its.bases);
    if (its.results != 0) results_of_[at] = found<std::byte>(r, its.results);
  }
}

/// What the domain's experts have made of the tokens of `source`, for which this rank is the proxy: a sum for each.
void expert_exchange::inside::sum_of(rank_t source, std::byte* to, bool weighted) {
  const auto s = static_cast<std::size_t>(source);
  const std::uint32_t replicas = domain_replicas();
  const entry_lists lists(near(rank_, mine().streams[s].lists), replicas);
  const std::uint32_t entries = lists.begins[replicas];
  // The entries of each row, by replica.
  of_row_.assign(rows_from_[s] + 2, 0);
  for (std::uint32_t e = 0; e < entries; ++e) ++of_row_[lists.rows[e] + 2];
  for (std::size_t row = 2; row < of_row_.size(); ++row) of_row_[row] += of_row_[row - 1];
  row_at_.resize(entries);
  factor_of_.resize(entries);
  for (std::uint32_t place = 0; place < replicas; ++place) {
    const std::uint32_t replica = domain_replica_[place];
    const rank_t r = replicas_.rank_of[replica];
    for (std::uint32_t e = lists.begins[place]; e < lists.begins[place + 1]; ++e) {
      const std::uint32_t at = of_row_[lists.rows[e] + 1]++;
      const std::size_t row = row_at(r, replica, source, e - lists.begins[place]);
      row_at_[at] = results_of_[static_cast<std::size_t>(r)] + row * result_bytes();
      factor_of_[at] = weighted ? static_cast<double>(lists.weights[e]) : 1;
    }
  }
  for (std::size_t row = 0; row < rows_from_[s]; ++row) {
    const std::size_t begin = of_row_[row], count = of_row_[row + 1] - begin;
    sum_rows(options_.type, std::span<const std::byte* const>(row_at_).subspan(begin, count),
             std::span<const double>(factor_of_).subspan(begin, count), to + row * result_bytes(), options_.hidden,
             store_hint::cached);
  }
}

/// Those of all sources, back to where they are from.
void expert_exchange::inside::sum_for_others(bool weighted) {
  const auto n = static_cast<std::size_t>(ranks_);
  sizes_.assign(n, 0);
  coming_.assign(n, 0);
  std::size_t all = 0;
  for (std::size_t s = 0; s < n; ++s) all += sizes_[s] = in_lines(rows_from_[s] * result_bytes());
  for (std::size_t d = 0; d < replicas_.domains.size(); ++d)
    if (rows_there_[d] > 0)
      coming_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))] =
          in_lines(rows_there_[d] * result_bytes());
  std::byte* to = sums_out_.grow(std::max(all, line));
  for (std::size_t s = 0; s < n; to += sizes_[s++])
    if (rows_from_[s] > 0) sum_of(static_cast<rank_t>(s), to, weighted);
  exchange_blocks(sums_out_, sizes_, sums_in_, coming_);
  coming_begins_.resize(n);
  for (std::size_t r = 0, at = 0; r < n; at += coming_[r++]) coming_begins_[r] = at;
}

/// Of each token: of its own domain's experts in its order, then of the other domains.
void expert_exchange::inside::sum(std::byte* output, bool weighted) {
  const auto k = static_cast<std::size_t>(options_.top_k);
  const store_hint stores = stores_of(tokens_ * result_bytes());
  std::array<const std::byte*, expert_options::most_top_k> rows{};
  std::array<double, expert_options::most_top_k> factors{};
  for (std::size_t t = 0; t < tokens_; ++t) {
    std::size_t count = 0;
    for (std::size_t c = t * k; c < (t + 1) * k; ++c) {
      if (replica_[c] < 0) continue;
      const auto replica = static_cast<std::size_t>(replica_[c]);
      if (domain_of_replica(replica) != static_cast<std::size_t>(domain_)) continue;
      const rank_t r = replicas_.rank_of[replica];
      rows[count] = results_of_[static_cast<std::size_t>(r)] + row_at(r, replica, rank_, index_[c]) * result_bytes();
      factors[count++] = weighted ? static_cast<double>(weights_[c]) : 1;
    }
    if (spreads())
      for (std::size_t d = 0; d < replicas_.domains.size(); ++d)
        if (const std::uint32_t row = row_there_[d * tokens_ + t]; row != none) {
          rows[count] = sums_in_.get() +
                        coming_begins_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))] +
                        row * result_bytes();
          factors[count++] = 1;
        }
    sum_rows(options_.type, {rows.data(), count}, {factors.data(), count}, output + t * result_bytes(), options_.hidden,
             stores);
  }
}

// -- gradients of weights -------------------------------------------------------------------------------------------------

void expert_exchange::inside::find_products() {
  for (const rank_t r : members()) {
    const expert_shown& its = shown(r);
    const auto at = static_cast<std::size_t>(r);
    bases_of_[at] = replicas_.replicas_at(r) == 0 ? nullptr : found<std::uint32_t>(r, its.bases);
    results_of_[at] = its.products == 0 ? nullptr : found<std::byte>(r, its.products);
  }
}

/// Those of the tokens of others, in the order of their lists.
void expert_exchange::inside::send_products() {
  const auto n = static_cast<std::size_t>(ranks_);
  const std::uint32_t replicas = domain_replicas();
  sizes_.assign(n, 0);
  coming_.assign(n, 0);
  std::size_t all = 0;
  const auto lists_from = [&](std::size_t s) { return entry_lists(near(rank_, mine().streams[s].lists), replicas); };
  for (std::size_t s = 0; s < n; ++s)
    if (rows_from_[s] > 0) all += sizes_[s] = in_lines(lists_from(s).begins[replicas] * sizeof(float));
  for (std::size_t d = 0; d < replicas_.domains.size(); ++d)
    if (rows_there_[d] > 0)
      coming_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))] =
          in_lines(entries_there_[d] * sizeof(float));
  std::byte* to = sums_out_.grow(std::max(all, line));
  for (std::size_t s = 0; s < n; to += sizes_[s++]) {
    if (rows_from_[s] == 0) continue;
    const entry_lists lists = lists_from(s);
    auto* const out = reinterpret_cast<float*>(to);
    for (std::uint32_t place = 0; place < replicas; ++place) {
      const std::uint32_t replica = domain_replica_[place];
      const auto r = static_cast<std::size_t>(replicas_.rank_of[replica]);
      const auto* const from = reinterpret_cast<const float*>(results_of_[r]);
      for (std::uint32_t e = lists.begins[place]; e < lists.begins[place + 1]; ++e)
        out[e] = from[bases_of_[r][(replica - replicas_.first[r]) * n + s] + (e - lists.begins[place])];
    }
  }
  exchange_blocks(sums_out_, sizes_, sums_in_, coming_);
  coming_begins_.resize(n);
  for (std::size_t r = 0, at = 0; r < n; at += coming_[r++]) coming_begins_[r] = at;
}

void expert_exchange::inside::collect_products(std::span<float> weight_gradient) {
  const auto n = static_cast<std::size_t>(ranks_);
  for (std::size_t c = 0; c < weight_gradient.size(); ++c) {
    weight_gradient[c] = 0;
    if (replica_[c] < 0) continue;
    const auto replica = static_cast<std::size_t>(replica_[c]);
    const std::size_t d = domain_of_replica(replica);
    if (d == static_cast<std::size_t>(domain_)) {
      const auto r = static_cast<std::size_t>(replicas_.rank_of[replica]);
      weight_gradient[c] = reinterpret_cast<const float*>(
          results_of_[r])[bases_of_[r][(replica - replicas_.first[r]) * n + static_cast<std::size_t>(rank_)] +
                          index_[c]];
    } else {
      const auto* const came = reinterpret_cast<const float*>(
          sums_in_.get() + coming_begins_[static_cast<std::size_t>(replicas_.proxy(static_cast<int>(d), rank_))]);
      weight_gradient[c] = came[begin_of_replica_[replica] + index_[c]];
    }
  }
}

}  // namespace troupe
