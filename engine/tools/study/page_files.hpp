// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of engine/tools/study/page/, as the build put them into the library (cmake/troupe_embed_page.cmake).

#include <string_view>

namespace troupe::page_files {

extern const std::string_view html;    ///< page.html: the template, with @style@, @data@ and @script@
extern const std::string_view style;   ///< page.css
extern const std::string_view script;  ///< all *.js, one after the other; page.js last

}  // namespace troupe::page_files
