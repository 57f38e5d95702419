// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choreographies in shared libraries (protocols/choreographies/plugin.hpp).

namespace troupe {

/// Registers what the library at `path` shows; it stays loaded. Thread-safe. Throws errc::bad_config with what is wrong with it, as
/// register_choreography() and the loader say.
void load_choreographies(const char* path);

}  // namespace troupe
