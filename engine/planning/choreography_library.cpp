// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/choreography_library.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>

#include <dlfcn.h>

#include "memory/error.hpp"
#include "protocols/choreographies/plugin.hpp"

namespace troupe {

void load_choreographies(const char* path) {
  const auto refuse = [&](const std::string& why) {
    throw error(errc::bad_config, "the library of choreographies " + std::string{path} + ": " + why);
  };
  // A pipe would be read until somebody writes to it.
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular)
    refuse("it is no file, but a folder, a pipe or a device; name a shared library");
  // Never closed: the choreographies' code and names are in there.
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    refuse(why != nullptr ? why : "it cannot be loaded");
  }
  const auto* list = static_cast<const choreography_list*>(::dlsym(library, "troupe_choreographies"));
  if (list == nullptr) {
    refuse("it shows no troupe_choreographies; TROUPE_CHOREOGRAPHIES(&mine) makes one");
    return;
  }
  const auto& wanted = choreography_list::wanted_sizes;
  if (!std::equal(wanted.begin(), wanted.end(), std::begin(list->sizes)))
    refuse("it was built with another version of Troupe; build it again");
  for (std::size_t i = 0; i < list->count; ++i) register_choreography(*list->begin[i]);
}

}  // namespace troupe
