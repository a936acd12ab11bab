"""cc_test under the file name that newer rules_cc releases use."""

cc_test = native.cc_test
