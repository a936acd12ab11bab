"""cc_library under the file name that newer rules_cc releases use."""

cc_library = native.cc_library
