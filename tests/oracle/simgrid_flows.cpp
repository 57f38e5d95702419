// SPDX-License-Identifier: Apache-2.0
// Flows on a network of any form under SimGrid (S4U, its fluid max-min model), for oracle_test.cpp. Knows nothing of Troupe.
//
// Reads: HOSTS LINKS FLOWS, by link: bytes a second and latency in ns, by flow: from, to, bytes, number of links, the links. No two flows have
// the same ends; all begin at 0. Prints when each was done, in ns, a line a flow.
#include <simgrid/s4u.hpp>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

int main(int argc, char** argv) {
  sg::Engine engine(&argc, argv);
  int hosts = 0, links = 0, flows = 0;
  if (!(std::cin >> hosts >> links >> flows)) return 2;
  sg::NetZone* all = sg::create_full_zone("all");
  std::vector<sg::Host*> host;
  for (int h = 0; h < hosts; ++h) host.push_back(all->create_host("rank" + std::to_string(h), 1e9));
  std::vector<sg::Link*> link;
  for (int l = 0; l < links; ++l) {
    double bandwidth = 0, latency = 0;
    std::cin >> bandwidth >> latency;
    link.push_back(all->create_link("link" + std::to_string(l), bandwidth)->set_latency(latency * 1e-9)->seal());
  }
  std::vector<double> done(static_cast<std::size_t>(flows));
  for (int f = 0; f < flows; ++f) {
    int from = 0, to = 0, count = 0;
    unsigned long long bytes = 0;
    std::cin >> from >> to >> bytes >> count;
    std::vector<sg::LinkInRoute> way;
    for (int i = 0, l = 0; i < count && std::cin >> l; ++i) way.emplace_back(link.at(static_cast<std::size_t>(l)));
    sg::Host *const a = host.at(static_cast<std::size_t>(from)), *const b = host.at(static_cast<std::size_t>(to));
    all->add_route(a->get_netpoint(), b->get_netpoint(), nullptr, nullptr, way, false);
    double* const end = &done[static_cast<std::size_t>(f)];
    sg::Actor::create("flow" + std::to_string(f), a, [=] {
      sg::Comm::sendto(a, b, bytes);
      *end = sg::Engine::get_clock();
    });
  }
  if (!std::cin) return 2;
  all->seal();
  engine.run();
  for (const double end : done) std::printf("%.6f\n", end * 1e9);
}
