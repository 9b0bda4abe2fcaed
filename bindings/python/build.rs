//! Where a library may not be linked with symbols that are missing, it is told
//! that the interpreter brings those of Python.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
