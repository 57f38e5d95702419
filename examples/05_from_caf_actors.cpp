// SPDX-License-Identifier: Apache-2.0
// For programs that are made of C++ Actor Framework actors: an actor asks a rank's actor for a collective and gets a
// response, like from any other actor. Nobody blocks.

#include <array>
#include <cstdio>
#include <vector>

#include <caf/all.hpp>

#include <troupe.hpp>

#include "engine/api/caf_actors.hpp"  // the one header of Troupe that shows CAF

constexpr int ranks = 4;

/// An actor of yours. It owns its data, which must live until the response comes; so the actor waits for it before it
/// ends.
class worker : public caf::event_based_actor {
public:
  worker(caf::actor_config& config, int number, caf::actor rank, caf::actor report_to)
      : caf::event_based_actor(config), number_(number), rank_(std::move(rank)), report_to_(std::move(report_to)) {}

  caf::behavior make_behavior() override {
    data_ = {static_cast<double>(number_), 1.0};
    // The same descriptions that communicator::all_reduce and its kin make (engine/api/calls.hpp).
    const troupe::collective_request all_reduce{troupe::calls::all_reduce(data_, troupe::sum)};
    // The name of `request` differs between CAF 0.17 and 1.x; ask() and post() of caf_actors.hpp are one of both.
    troupe::actors::ask(*this, rank_, caf::infinite, all_reduce).then([this](const troupe::collective_response& done) {
      if (done.status) std::fprintf(stderr, "worker %d: %s\n", number_, done.message.c_str());
      troupe::actors::post(report_to_, number_, data_[0], data_[1]);
      quit();
    });
    return {[](caf::unit_t) {}};  // a behavior, so that the actor lives on until the response
  }

private:
  int number_;
  caf::actor rank_, report_to_;
  std::array<double, 2> data_{};
};

int main() {
  troupe::engine engine;
  std::vector<troupe::communicator> comms = engine.communicators(ranks);  // they must outlive the requests

  // The engine's own actor system hosts your actors, too: they run on the same threads.
  caf::actor_system& system = troupe::caf_system(engine);
  caf::scoped_actor self{system};
  for (troupe::communicator& comm : comms)
    system.spawn<worker>(comm.rank(), troupe::rank_actor(comm), caf::actor_cast<caf::actor>(self));

  std::array<std::array<double, 2>, ranks> result{};
  for (int received = 0; received < ranks; ++received)
    self->receive([&](int number, double sum, double count) {
      result[static_cast<std::size_t>(number)] = {sum, count};
    });
  for (int r = 0; r < ranks; ++r)
    std::printf("worker %d: sum of the numbers %g, number of workers %g\n", r, result[static_cast<std::size_t>(r)][0],
                result[static_cast<std::size_t>(r)][1]);
}
