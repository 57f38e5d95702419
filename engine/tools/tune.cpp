// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/tune.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "engine/tools/explain_measured.hpp"
#include "engine/tools/tune_nic.hpp"
#include "engine/tools/tune_primitives.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"

namespace troupe {

// -- the model --------------------------------------------------------------------------------------------------------

namespace {

call_shape shape_of(std::size_t bytes) { return {bytes / size_of(datatype::f32), {}, {}, {}, size_of(datatype::f32)}; }

direct_program made_direct(const score& notes, std::size_t bytes) {
  const call_shape sizes = shape_of(bytes);
  std::vector<std::shared_ptr<const program>> all;
  for (rank_t r = 0; r < notes.ranks; ++r)
    all.push_back(std::make_shared<const program>(compile(notes, r, sizes, cutting{})));
  return compile_direct(all, {notes.what, notes.root, false});
}

}  // namespace

calibration_model::calibration_model(const calibration& of) : of_(of) {
  layout all_apart = layout::flat(of.ranks);
  for (int r = 0; r < of.ranks && of.between != reach::process; ++r)
    all_apart.homes.push_back({of.between == reach::network ? r : 0, r});
  const reach_map where{std::move(all_apart)};
  const score notes =
      lower_syncs(write_score(*find_choreography(of.choreography), flat_setup(collective::all_reduce, of.ranks)));
  parts_ = std::max(1, notes.parts);
  if (of.protocol == message_protocol::direct)
    direct_ = std::make_shared<const direct_program>(made_direct(notes, of.bytes));
  else sheet_ = std::make_shared<const timing_sheet>(notes, &where);
}

double calibration_model::predict(const tuning& t) const {
  const double block = static_cast<double>(of_.bytes), cell = block / parts_;
  const double bytes_a_core = 2 * block * of_.ranks / std::min(t.machine.cores, of_.ranks);
  constexpr int credits = 8, no_limit = 64;
  if (direct_) return t.direct_seconds(*direct_, shape_of(of_.bytes), bytes_a_core, datatype::f32);
  if (of_.protocol == message_protocol::simple)
    return t.actor_operation_seconds(of_.ranks) +
           sheet_->predict(cell, {}, credits, t.through_actors(bytes_a_core, datatype::f32));
  const auto format = of_.protocol == message_protocol::ll ? slot_format::ll : slot_format::ll128;
  return t.slot_operation_seconds() +
         sheet_->predict(cell, {}, no_limit, t.over_slots(format, of_.ranks, bytes_a_core, datatype::f32));
}

namespace {

using constant = double tuning::*;
constexpr std::array<constant, 5> of_actors{&tuning::actor_operation_ns, &tuning::actor_rank_ns,
                                            &tuning::actor_message_ns, &tuning::actor_step_ns,
                                            &tuning::actor_operand_ns};
constexpr std::array<constant, 6> of_slots{&tuning::slot_operation_ns, &tuning::slot_message_ns,
                                           &tuning::slot_turn_ns,      &tuning::slot_step_ns,
                                           &tuning::ll_line_ns,        &tuning::ll128_line_ns};
constexpr std::array<constant, 4> of_direct{&tuning::direct_operation_ns, &tuning::direct_rank_ns,
                                            &tuning::direct_turn_ns, &tuning::direct_line_ns};
constexpr std::array<constant, 2> of_ring{&tuning::ring_message_ns, &tuning::ring_kilobyte_ns};
constexpr std::array<constant, 2> of_sockets{&tuning::socket_message_ns, &tuning::socket_kilobyte_ns};
/// Constants that are found by a collective's time. The cost of actors is known before links are measured.
std::span<const constant> constants_of(const calibration& c) {
  if (c.between == reach::segment) return of_ring;
  if (c.between == reach::network) return of_sockets;
  if (c.protocol == message_protocol::simple) return of_actors;
  if (c.protocol == message_protocol::direct) return of_direct;
  return of_slots;
}
constexpr double least_ns = 0.1, most_ns = 1e6;

class fitting {
public:
  fitting(tuning& constants, std::span<const calibration> measured) : constants_(constants) {
    for (const calibration& c : measured) points_.push_back({calibration_model{c}, c.seconds});
  }

  /// Typical ratio.
  double run(std::span<const constant> which) {
    for (const constant c : which) begun_.emplace_back(c, constants_.*c);
    double least = badness();
    for (const double factor : {3.0, 1.7, 1.3, 1.1, 1.03, 1.01})
      for (bool better = true; better;) {
        better = false;
        for (const constant c : which)
          for (const double by : {factor, 1 / factor}) {
            const double before = constants_.*c;
            constants_.*c = std::clamp(before * by, least_ns, most_ns);
            const double now = badness();
            // A constant that hardly matters is not carried away by noise.
            if (now < least * (1 - 1e-4)) least = now, better = true;
            else constants_.*c = before;
          }
      }
    return std::exp(std::sqrt(deviation() / static_cast<double>(std::max<std::size_t>(1, points_.size()))));
  }

private:
  /// Constants that the points do not tell apart stay near where they began.
  double badness() const {
    double total = deviation();
    for (const auto& [c, begun] : begun_) {
      const double off = std::log(constants_.*c / begun);
      total += anchor * off * off;
    }
    return total;
  }
  double deviation() const {
    double sum_of_squares = 0;
    for (const auto& [model, seconds] : points_) {
      const double off = std::log(model.predict(constants_) / seconds);
      sum_of_squares += off * off;
    }
    return sum_of_squares;
  }

  struct point {
    calibration_model model;
    double seconds;
  };
  static constexpr double anchor = 0.02;  ///< beside one point's squared deviation
  tuning& constants_;
  std::vector<point> points_;
  std::vector<std::pair<constant, double>> begun_;
};

}  // namespace

double fit(tuning& constants, std::span<const calibration> measured) {
  double worst = 1;
  for (const std::span<const constant> which :
       {std::span<const constant>{of_actors}, std::span<const constant>{of_slots}, std::span<const constant>{of_direct},
        std::span<const constant>{of_ring}, std::span<const constant>{of_sockets}}) {
    std::vector<calibration> own;
    std::copy_if(measured.begin(), measured.end(), std::back_inserter(own),
                 [&](const calibration& c) { return constants_of(c).data() == which.data(); });
    if (!own.empty()) worst = std::max(worst, fitting{constants, own}.run(which));
  }
  return worst;
}

// -- measuring --------------------------------------------------------------------------------------------------------

namespace {

class measuring {
public:
  explicit measuring(const tune_options& options) : options_(options), result_(assumed_tuning()) {}

  tuning run() {
    const double budget = options_.quick ? 20 : 100;
    tell("threads");
    result_.flag_exchange_ns = primitives::flag_exchange_ns(budget);
    result_.switch_ns = primitives::switch_ns(budget);
    result_.wake_ns = primitives::wake_ns(budget);
    result_.direct_staging_ns = primitives::staging_ns(budget);
    if (const double whole = primitives::peer_copy_ns(64 * 1024, budget); whole > 0) {
      result_.peer_call_ns = primitives::peer_copy_ns(64, budget);
      result_.peer_kilobyte_ns = std::max(0.0, (whole - result_.peer_call_ns) / 64);
    }
    tell("the NIC's thread");
    result_.nic_step_ns = nic_step_ns(budget);
    const nic_caller_costs callers = nic_caller_ns(budget);
    result_.nic_post_ns = callers.post;
    result_.nic_wake_ns = callers.wake;
    memory();
    types();
    // The fit begins where the primitives are.
    result_.slot_message_ns = result_.flag_exchange_ns;
    result_.slot_turn_ns = result_.direct_turn_ns = result_.switch_ns;
    result_.direct_rank_ns = result_.flag_exchange_ns;
    result_.deviation = fit(result_, collectives());
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &parts));
    result_.measured = text;
    return result_;
  }

private:
  void tell(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  /// From the first-level cache to beyond all caches.
  std::vector<double> sizes() const {
    std::vector<double> list;
    const double last =
        std::max(64.0 * (1 << 20), 3.0 * static_cast<double>(result_.machine.l3_bytes) / result_.machine.cores);
    for (double bytes = 16 * 1024; bytes < last; bytes *= options_.quick ? 16 : 4) list.push_back(bytes);
    list.push_back(last);
    return list;
  }

  void memory() {
    const int all = result_.machine.cores;
    struct row {
      rate_curve tuning::*curve;
      primitives::pass what;
      int threads;
    };
    const row rows[] = {{&tuning::copy, {}, all},
                        {&tuning::copy_one_core, {}, 1},
                        {&tuning::copy_streamed, {1, 1, store_hint::streamed, datatype::f32}, all},
                        {&tuning::reduce, {2, 1, store_hint::by_size, datatype::f32}, all},
                        {&tuning::reduce_one_core, {2, 1, store_hint::by_size, datatype::f32}, 1},
                        {&tuning::pass, {4, 4, store_hint::by_size, datatype::f32}, all}};
    const double budget = options_.quick ? 10 : 60;
    for (const row& r : rows) {
      std::vector<rate_curve::point> points;
      for (const double bytes : sizes()) {
        tell("memory: " + std::to_string(r.what.inputs) + " to " + std::to_string(r.what.outputs) + ", " +
             std::to_string(static_cast<long long>(bytes / 1024)) + " KiB");
        points.push_back({bytes, primitives::rate(r.what, bytes, r.threads, budget)});
      }
      result_.*r.curve = points;
    }
  }

  void types() {
    for (const datatype type : tuned_datatypes) {
      tell("sum of " + std::string{name(type)});
      result_.type_rate[static_cast<std::size_t>(type)] =
          primitives::rate({2, 1, store_hint::cached, type}, 12 * 1024, 1, options_.quick ? 5 : 20);
    }
  }

  std::vector<int> rank_counts() const {
    const int cores = result_.machine.cores;
    std::vector<int> list{2, 4, 8};
    if (cores >= 8 && 2 * cores <= 64) list.push_back(2 * cores);  // some must share cores
    return list;
  }

  std::vector<calibration> candidates() const {
    std::vector<calibration> list;
    for (const int ranks : rank_counts()) {
      for (const char* name : {"fused", "one_shot", "recursive_doubling", "ring"})
        list.push_back({name, ranks, 8, message_protocol::simple, 0});
      for (const char* name : {"one_shot", "recursive_doubling", "halving_doubling", "ring"})
        for (const std::size_t bytes : {8U, 2048U, 16384U})
          for (const message_protocol protocol : {message_protocol::ll, message_protocol::ll128})
            list.push_back({name, ranks, bytes, protocol, 0});
      for (const std::size_t bytes : {8U, 2048U, 16384U, 131072U, 1U << 20})
        list.push_back({"fused", ranks, bytes, message_protocol::direct, 0});
    }
    return list;
  }

  /// Small collectives, interleaved; medians.
  std::vector<calibration> collectives() {
    engine_options options;
    options.tuning = "none";
    engine on{options};
    std::vector<calibration> list = candidates();
    std::vector<std::vector<double>> times(list.size());
    const int rounds = options_.quick ? 1 : 5;
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < list.size(); ++i) {
        const calibration& c = list[i];
        tell("collectives: " + c.choreography + ", " + std::to_string(c.ranks) + " ranks, round " +
             std::to_string(round + 1) + " of " + std::to_string(rounds));
        job one;
        one.bytes = c.bytes;
        one.places = job_places::out;
        one.choreography = c.choreography;
        one.protocol = c.protocol;
        try {
          times[i].push_back(measure_call(on, one, c.ranks, options_.quick ? 2 : 5));
        } catch (const error& e) {
          if (e.code_value() != errc::unsupported) throw;  // too large for the slots, or not for so many ranks
        }
      }
    for (std::size_t i = list.size(); i-- > 0;) {
      if (times[i].empty()) {
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      std::sort(times[i].begin(), times[i].end());
      list[i].seconds = times[i][times[i].size() / 2];
    }
    return list;
  }

  const tune_options& options_;
  tuning result_;
};

}  // namespace

tuning measure_machine(const tune_options& options) { return measuring{options}.run(); }

}  // namespace troupe
