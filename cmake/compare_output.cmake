# SPDX-License-Identifier: Apache-2.0
# cmake -Dprogram=PATH [-Dexpected=FILE] [-Dstatus=N] -P compare_output.cmake
# Runs the program; fails unless it exits with N (0) and, when FILE exists, its standard output equals FILE.
execute_process(COMMAND ${program} OUTPUT_VARIABLE actual ERROR_VARIABLE errors RESULT_VARIABLE result)
message("${actual}${errors}")
if(NOT DEFINED status)
  set(status 0)
endif()
if(NOT result EQUAL status)
  message(FATAL_ERROR "${program} ended with ${result}")
endif()
if(EXISTS "${expected}")
  file(READ ${expected} wanted)
  if(NOT actual STREQUAL wanted)
    message("--- expected instead:\n${wanted}")
    message(FATAL_ERROR "the output is not what ${expected} says")
  endif()
endif()
