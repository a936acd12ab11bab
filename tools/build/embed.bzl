"""embed_file: the bytes of a file as a C++ string, so that a binary needs no file beside it at run time."""

load("@rules_cc//cc:cc_library.bzl", "cc_library")

def embed_file(name, src, function, header, visibility = None):
    """Makes a cc_library with `const std::string& function();` in namespace headwise.

    Args:
      name: the library.
      src: the file.
      function: the C++ function's name.
      header: path of the generated header within the package, e.g. "config_descriptor.h".
      visibility: of the library.
    """
    source = header[:-len(".h")] + ".cc"
    guard = "HEADWISE_" + (native.package_name() + "/" + header).upper().replace("/", "_").replace(".", "_") + "_"
    native.genrule(
        name = name + "_gen",
        srcs = [src],
        outs = [header, source],
        cmd = """
{{
  echo '// Generated from {src}.'
  echo '#ifndef {guard}'
  echo '#define {guard}'
  echo '#include <string>'
  echo 'namespace headwise {{'
  echo 'const std::string& {function}();'
  echo '}}  // namespace headwise'
  echo '#endif  // {guard}'
}} > $(location {header})
{{
  echo '#include "{package}/{header}"'
  echo 'namespace headwise {{'
  echo 'static const unsigned char kBytes[] = {{'
  od -An -v -tu1 $(location {src}) | sed -E 's/ +([0-9]+)/\\1,/g'
  echo '0}};'
  echo 'const std::string& {function}() {{'
  echo '  static const std::string* const bytes ='
  echo '      new std::string(reinterpret_cast<const char*>(kBytes), sizeof(kBytes) - 1);'
  echo '  return *bytes;'
  echo '}}'
  echo '}}  // namespace headwise'
}} > $(location {source})
""".format(src = src, guard = guard, function = function, header = header, source = source, package = native.package_name()),
    )
    cc_library(
        name = name,
        srcs = [source],
        hdrs = [header],
        visibility = visibility,
    )
