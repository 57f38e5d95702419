// SPDX-License-Identifier: Apache-2.0
// write_page OUT.html STUDY.json [STUDY.json]: the report page of study documents, by the library itself.

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/tools/study/page.hpp"

int main(int count, char** arguments) try {
  if (count < 3) {
    std::cerr << "usage: write_page OUT.html STUDY.json [STUDY.json]\n";
    return 2;
  }
  std::vector<std::string> documents;
  for (int i = 2; i < count; ++i) {
    std::ifstream in{arguments[i], std::ios::binary};
    if (!in) throw std::runtime_error(std::string("cannot read ") + arguments[i]);
    documents.emplace_back(std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{});
  }
  std::ofstream out{arguments[1], std::ios::binary};
  out << troupe::study_page(documents);
  if (!out.flush()) throw std::runtime_error(std::string("cannot write ") + arguments[1]);
  return 0;
} catch (const std::exception& fault) {
  std::cerr << "write_page: " << fault.what() << '\n';
  return 1;
}
