# SPDX-License-Identifier: Apache-2.0
# As a module: troupe_embed_page(<target>) adds the files of engine/tools/study/page/ to the target, as constants.
# As a script: cmake -Dfrom=<folder> -Dto=<file.cpp> -P troupe_embed_page.cmake writes that source.
set(page_scripts format.js canvas.js svg.js model.js animation.js gantt.js charts.js share.js page.js)  # one scope; page.js starts it all

function(troupe_embed_page target)
  set(from ${PROJECT_SOURCE_DIR}/engine/tools/study/page)
  set(to ${CMAKE_CURRENT_BINARY_DIR}/study_page_files.cpp)
  list(TRANSFORM page_scripts PREPEND ${from}/ OUTPUT_VARIABLE scripts)
  add_custom_command(OUTPUT ${to}
    COMMAND ${CMAKE_COMMAND} -Dfrom=${from} -Dto=${to} -P ${PROJECT_SOURCE_DIR}/cmake/troupe_embed_page.cmake
    DEPENDS ${scripts} ${from}/page.html ${from}/page.css ${PROJECT_SOURCE_DIR}/cmake/troupe_embed_page.cmake
    COMMENT "Embedding the report page" VERBATIM)
  target_sources(${target} PRIVATE ${to})
endfunction()

# As numbers: no text in these files can upset the compiler or CMake's lists.
function(append_constant name)
  set(hex "")
  foreach(file IN LISTS ARGN)
    file(READ ${from}/${file} one HEX)
    string(APPEND hex "${one}")
  endforeach()
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND text "const unsigned char ${name}_bytes[] = {\n${bytes}\n};\n"
    "const std::string_view ${name}{reinterpret_cast<const char*>(${name}_bytes), sizeof ${name}_bytes};\n\n")
  set(text "${text}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  foreach(script IN LISTS page_scripts)
    file(STRINGS ${from}/${script} ends REGEX "</[sS][cC][rR][iI][pP][tT]|<!--")
    if(ends)
      message(FATAL_ERROR "${script} would end the script element of the page: ${ends}")
    endif()
  endforeach()
  set(text "// Made from engine/tools/study/page/ by troupe_embed_page.cmake.\n#include \"engine/tools/study/page_files.hpp\"\n\nnamespace troupe::page_files {\n\n")
  append_constant(html page.html)
  append_constant(style page.css)
  append_constant(script ${page_scripts})
  string(APPEND text "}  // namespace troupe::page_files\n")
  file(WRITE ${to} "${text}")
endif()
