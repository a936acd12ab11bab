"""cc_binary under the file name that newer rules_cc releases use."""

cc_binary = native.cc_binary
