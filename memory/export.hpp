// SPDX-License-Identifier: Apache-2.0
#pragma once
// TROUPE_API marks what libtroupe exports: what is declared in a public header and defined in a source. All else is hidden.
// TROUPE_INTERNAL hides a class that would inherit the mark because it is declared inside a marked one; it stands at the definition.

#define TROUPE_INTERNAL __attribute__((visibility("hidden")))
#ifdef TROUPE_STATIC  // a program, or a library of somebody else's, that has Troupe inside does not export it again
#define TROUPE_API
#else
#define TROUPE_API __attribute__((visibility("default")))
#endif
