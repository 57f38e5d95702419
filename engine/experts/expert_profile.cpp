// SPDX-License-Identifier: Apache-2.0
#include "engine/experts/expert_profile.hpp"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace troupe {

namespace {

template <class... A>
void add(std::string& to, const char* form, A... values) {
  char line[256];
  std::snprintf(line, sizeof line, form, values...);
  to += line;
}

using word = unsigned long long;

/// A bar of the share, 20 characters at most.
std::string bar(std::uint64_t of, std::uint64_t most) {
  return std::string(most == 0 ? 0 : static_cast<std::size_t>((20 * of + most - 1) / most), '#');
}

double microseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

}  // namespace

rank_t expert_profile::bottleneck() const {
  const auto most = std::max_element(ranks.begin(), ranks.end(),
                                     [](const of_rank& a, const of_rank& b) { return a.received < b.received; });
  return most == ranks.end() ? -1 : static_cast<rank_t>(most - ranks.begin());
}

double expert_profile::imbalance() const {
  std::uint64_t all = 0, most = 0;
  for (const of_rank& r : ranks) {
    all += r.received;
    most = std::max(most, r.received);
  }
  return all == 0 ? 1 : static_cast<double>(most) * static_cast<double>(ranks.size()) / static_cast<double>(all);
}

double expert_profile::share_of_exchange() const {
  std::chrono::nanoseconds exchanging{}, altogether{};
  for (const of_rank& r : ranks) {
    exchanging += r.exchanging;
    altogether += r.altogether;
  }
  return altogether.count() == 0 ? 0
                                 : static_cast<double>(exchanging.count()) / static_cast<double>(altogether.count());
}

std::uint64_t expert_profile::dropped() const {
  std::uint64_t all = 0;
  for (const of_rank& r : ranks) all += r.dropped;
  return all;
}

std::string expert_profile::table(bool times) const {
  std::string text;
  add(text, "%llu dispatches; rank %d receives most, %.2f times the average; %llu dropped", word{dispatches},
      bottleneck(), imbalance(), word{dropped()});
  if (times) add(text, "; %.0f %% of the time in the exchange", 100 * share_of_exchange());
  text += "\n  rank    tokens      sent  received   dropped   crossed";
  text += times ? "  µs a dispatch\n" : "\n";
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const of_rank& of = ranks[r];
    add(text, "%6zu %9llu %9llu %9llu %9llu %9llu", r, word{of.tokens}, word{of.sent}, word{of.received},
        word{of.dropped}, word{of.crossed});
    if (times)
      add(text, "  %13.1f", dispatches == 0 ? 0 : microseconds(of.exchanging) / static_cast<double>(dispatches));
    text += '\n';
  }
  text += "expert    tokens   dropped\n";
  const std::uint64_t most =
      tokens_of_expert.empty() ? 0 : *std::max_element(tokens_of_expert.begin(), tokens_of_expert.end());
  for (std::size_t e = 0; e < tokens_of_expert.size(); ++e) {
    add(text, "%6zu %9llu %9llu  ", e, word{tokens_of_expert[e]}, word{dropped_of_expert[e]});
    text += bar(tokens_of_expert[e], most);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string expert_profile::json() const {
  nlohmann::ordered_json all;
  all["dispatches"] = dispatches;
  all["bottleneck"] = bottleneck();
  all["imbalance"] = imbalance();
  all["share_of_exchange"] = share_of_exchange();
  all["dropped"] = dropped();
  all["ranks"] = nlohmann::ordered_json::array();
  const std::size_t experts = tokens_of_expert.size();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const of_rank& r = ranks[i];
    all["ranks"].push_back({{"tokens", r.tokens},
                            {"sent", r.sent},
                            {"received", r.received},
                            {"dropped", r.dropped},
                            {"crossed", r.crossed},
                            {"crossing", r.crossing},
                            {"exchanging_us", microseconds(r.exchanging)},
                            {"altogether_us", microseconds(r.altogether)}});
    if (sent_to_expert.size() != experts * ranks.size()) continue;
    const auto first = sent_to_expert.begin() + static_cast<std::ptrdiff_t>(i * experts);
    all["ranks"].back()["sent_to_expert"] =
        std::vector<std::uint64_t>(first, first + static_cast<std::ptrdiff_t>(experts));
  }
  all["experts"] = nlohmann::ordered_json::array();
  for (std::size_t e = 0; e < tokens_of_expert.size(); ++e)
    all["experts"].push_back({{"tokens", tokens_of_expert[e]}, {"dropped", dropped_of_expert[e]}});
  return all.dump(2);
}

}  // namespace troupe
