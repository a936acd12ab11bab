"""The part of rules_cc that Headwise and Bazel 4.2's own tools load: the rules built into Bazel.

Debian's Bazel 4.2.3 cannot load Debian's rules_cc, and offline nothing can be fetched. Newer Bazels use the real
rules_cc, which offers the same names.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library
