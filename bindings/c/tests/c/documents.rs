//! Every program of the documentation is compiled and run.

use std::fs;

use ticketing_test_support::Server;

use crate::tool::{Program, folder};

/// The blocks of C in a page.
fn programs(page: &str) -> Vec<String> {
    let text = fs::read_to_string(folder().join("../..").join(page)).unwrap();
    let blocks = text.split("```c\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_programs_of_the_documentation_run() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    for page in ["README.md", "docs/c.md"] {
        let programs = programs(page);
        assert!(!programs.is_empty(), "{page} has no C");
        for (number, program) in programs.iter().enumerate() {
            // What is no whole program is part of one.
            let program = if program.contains("int main") {
                program.replace("127.0.0.1:5225", &server.addr().to_string())
            } else {
                let head = "#include \"check.h\"\n";
                let body = "static int part(ticketing_broker broker)\n{\n";
                let tail = "    return 0;\n}\nint main(int argc, char **argv)\n{\n    ticketing_broker broker = open_broker(argc - 1, argv + 1);\n    part(broker);\n    return ticketing_broker_free(broker);\n}\n";
                let (outside, inside) = program.split_once("/* … */\n").unwrap_or(("", program));
                format!("{head}{outside}{body}{inside}{tail}")
            };
            let source = folder.path().join(format!("{number}.c"));
            fs::write(&source, program).unwrap();
            Program::new(source).run(&[&server.addr().to_string()]);
        }
    }
}
