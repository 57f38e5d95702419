// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures the constants of the planner's cost model on this machine: what `troupe tune` does.
//
// Three kinds. The costs of threads and memory are measured as they are (tune_primitives.hpp), the engine's on the
// engine: small collectives of different choreographies, ranks and sizes are performed, and the constants are those with which the cost
// model comes closest to all of them (least squares of the logarithms, by coordinate descent from the assumed values).

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/planning/tuning.hpp"

namespace troupe {

struct tune_options {
  bool quick = false;  ///< a few seconds: fewer points, no repetition
  std::function<void(const std::string&)> progress{};
};

/// Measured alone on the machine, half a minute. Throws what collectives throw.
tuning measure_machine(const tune_options& options);

/// A collective that was measured: all_reduce of f32.
struct calibration {
  std::string choreography;
  int ranks = 2;
  std::size_t bytes = 8;
  message_protocol protocol = message_protocol::simple;
  double seconds = 0;
  reach between = reach::process;  ///< its ranks; in several processes only by `simple`
};

/// What the cost model says to it.
class calibration_model {
public:
  explicit calibration_model(const calibration& of);
  double predict(const tuning& constants) const;

private:
  calibration of_;
  double parts_;
  std::shared_ptr<const timing_sheet> sheet_;
  std::shared_ptr<const direct_program> direct_;
};

/// Changes the constants of the actors, of the slots, of the direct port and of links so that predictions come close to `measured`. Constants that no measurement
/// depends on stay as they are. Returns the typical ratio of prediction and measurement, ≥ 1.
double fit(tuning& constants, std::span<const calibration> measured);

}  // namespace troupe
