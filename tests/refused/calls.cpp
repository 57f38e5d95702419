// SPDX-License-Identifier: Apache-2.0
// Calls that do not compile. tests/checks/refused.sh compiles them, together or only one CASE, and looks for the sentence behind each. What the language
// says of an argument in braces, or of a name, comes after it with GCC. A case whose call GCC would take for that of
// another one has an argument of its own: an array of a length that no other has.
#include <algorithm>
#include <array>
#include <chrono>
#include <list>
#include <string>
#include <vector>

#include <troupe.hpp>

struct point {
  double x, y;
};

void call(troupe::communicator& comm, std::vector<float>& in, std::vector<float>& out) {
  point mine{};
  static_cast<void>(mine);
#if CASE == 0
  comm.all_reduce(in, out);  // compiles
#elif CASE == 1
  comm.all_reduce(std::list<float>{});  // ranges are contiguous
#elif CASE == 2
  std::vector<std::string> words(4);
  comm.broadcast(words, 0);  // their objects trivially copyable
#elif CASE == 3
  std::vector<double> wide(4);
  comm.all_reduce(in, wide);  // input and output hold the same type
#elif CASE == 4
  const std::vector<float> fixed(4);
  comm.broadcast(fixed, 0);  // an output is not const
#elif CASE == 5
  comm.all_reduce(mine);  // objects of this type do not reduce
#elif CASE == 6
  comm.all_reduce(in,
                  [](std::string, std::string) { return 1; });  // what reduces is an op or a function of two objects
#elif CASE == 7
  static_cast<void>(comm.all_reduce_async(std::vector<float>(3), out));  // no temporary that owns what it refers to
#elif CASE == 8
  float k = 2;
  static_cast<void>(
      comm.all_reduce_init(in, [k](float a, float b) { return a + k * b; }));  // name the range, object or function
#elif CASE == 9
  troupe::group all;
  comm.all_gather_async(all, 3.0f, out);  // no temporary that owns what it refers to
#elif CASE == 10
  std::complex<int> z;
  comm.all_reduce(z, [](std::complex<int> a, std::complex<int> b) { return a * b; });  // travel as one element each
#elif CASE == 11
  std::pair<int, float> two;
  comm.broadcast(two, 0);  // so is a single object
#elif CASE == 12
  short small = 1;
  comm.all_reduce(small);  // integers of 1, 4 and 8 bytes
#elif CASE == 13
  const std::vector<float> fixed(4);
  comm.send_recv(out, 1, fixed, 1);  // an output is not const
#elif CASE == 14
  comm.send_recv(std::list<float>{}, 1, in, 1);  // ranges are contiguous
#elif CASE == 15
  const std::vector<float> fixed(4);
  comm.send_recv_replace(fixed, 1, 1);  // an output is not const
#elif CASE == 16
  comm.all_reduce(in, troupe::sum, {.deadlin = std::chrono::seconds{1}});  // options in braces are (and the list's own)
#elif CASE == 17
  std::array<float, 17> own{};
  comm.all_reduce(own, out, {.deadline = 1});  // with a unit (and the list's own)
#elif CASE == 18
  std::array<float, 18> own{};
  static_cast<void>(comm.broadcast_async(own, 0, {.tags = 1}));  // options in braces are (and the list's own)
#elif CASE == 19
  std::array<float, 19> own{};
  static_cast<void>(comm.all_gather_init(
      own, out, {.deadlin = std::chrono::seconds{1}}));  // options in braces are (and the list's own)
#elif CASE == 20
  std::array<float, 20> own{};
  comm.all_reduce(own, std::max<float>);  // a lambda says which one (and the name's own)
#elif CASE == 21
  std::array<float, 21> own{};
  comm.all_gather_v(own, out, {1, 2, 3});  // counts of blocks are troupe::block_list{{1, 2, 3}} (and the list's own)
#elif CASE == 22
  std::array<float, 22> own{};
  static_cast<void>(comm.reduce_scatter_v_async(
      own, out, {1, 2, 3}, troupe::sum));  // counts of blocks are troupe::block_list{{1, 2, 3}} (and the list's own)
#elif CASE == 23
  comm.all_gather_v(in, out, std::vector<std::size_t>{1, 2, 3});  // and counts of blocks are a troupe::block_list
#elif CASE == 24
  comm.broadcast(in);  // a rank is missing behind these arguments
#elif CASE == 25
  comm.gather(in, out);  // a rank is missing behind these arguments
#elif CASE == 26
  std::array<float, 26> own{};
  comm.reduce(own);  // a reduce names its operation before it
#elif CASE == 27
  std::array<float, 27> own{};
  comm.send(own);  // a rank is missing behind these arguments
#elif CASE == 28
  std::array<float, 28> own{};
  static_cast<void>(comm.all_gather_init(std::vector<float>(3), own));  // no temporary that owns what it refers to
#elif CASE == 29
  static_cast<void>(comm.reduce_scatter_async(
      std::vector<float>(3), out, {.deadline = std::chrono::seconds{1}}));  // no temporary that owns what it refers to
#elif CASE == 30
  static_cast<void>(comm.all_gather_init(in, std::vector<float>(9),
                                         troupe::partitions(3)));  // no temporary that owns what it refers to
#elif CASE == 31
  static_cast<void>(comm.send_async(std::vector<float>(3), 1));  // no temporary that owns what it refers to
#elif CASE == 32
  static_cast<void>(comm.send_recv_async(std::vector<float>(3), 1, in, 1));  // no temporary that owns what it refers to
#elif CASE == 33
  std::array<float, 33> own{};
  static_cast<void>(comm.broadcast_async(own));  // a rank is missing behind these arguments
#elif CASE == 34
  std::array<float, 34> own{};
  static_cast<void>(comm.scatter_init(own, out));  // a rank is missing behind these arguments
#elif CASE == 35
  std::array<float, 35> own{};
  static_cast<void>(comm.gather_v_async(own, out, {1, 2},
                                        0));  // counts of blocks are troupe::block_list{{1, 2, 3}} (and the list's own)
#elif CASE == 36
  struct line {
    point from, to;
  } own{};
  static_cast<void>(comm.all_reduce_async(own));  // objects of this type do not reduce
#elif CASE == 37
  std::list<float> listed;
  static_cast<void>(comm.send_recv_replace_init(listed, 1, 1));  // ranges are contiguous
#elif CASE == 38
  comm.broadcast(in, {.deadline = std::chrono::seconds{1}});  // a rank is missing behind these arguments
#elif CASE == 39
  std::array<float, 39> own{};
  static_cast<void>(
      comm.reduce_async(own, {.deadline = std::chrono::seconds{1}}));  // a reduce names its operation before it
#endif
}
