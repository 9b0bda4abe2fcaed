use std::net::SocketAddr;

use super::*;

const TOKEN: &[u8] = b"sixteen bytes or more";

fn refused(options: Options, token: Option<&[u8]>) -> String {
    Config::new(options, secrets(token)).unwrap_err().to_string()
}

fn secrets(token: Option<&[u8]>) -> Secrets {
    Secrets { client_token: token.map(<[u8]>::to_vec), peer_secret: None }
}

fn listening(address: &str) -> Options {
    Options { listen: address.parse().ok(), ..Options::default() }
}

#[test]
fn nothing_given_is_a_server_for_this_machine() {
    let config = Config::new(Options::default(), secrets(None)).unwrap();
    assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 5225)));
    assert!(matches!(config.client_token, TokenSource::None) && config.tls.is_none());
    assert_eq!((config.limits.connections, config.limits.unauthenticated), (10_000, 1_024));
    assert_eq!(config.limits.unread_output, 1 << 20);
    assert_eq!(config.limits.engine, ticketing_engine::Limits::default());
}

#[test]
fn what_stands_higher_wins() {
    let flags = Options { threads: Some(2), ..Options::default() };
    let file: Options = toml::from_str("threads = 3\nmax-held = 5\nlisten = \"127.0.0.1:1\"").unwrap();
    let config = Config::new(flags.or(file), secrets(None)).unwrap();
    assert_eq!((config.threads.get(), config.limits.engine.held, config.listen.port()), (2, 5, 1));
    assert_eq!(config.limits.engine.waiters, 1_000_000);
}

/// A setting forgotten in [`Options::or`] would be lost on its way.
#[test]
fn every_setting_is_passed_on_from_the_file() {
    let all = r#"
        listen = "127.0.0.1:1"
        advertise = "h:1"
        client-token-file = "t"
        insecure-no-auth = true
        tls-cert = "c"
        tls-key = "k"
        data-dir = "d"
        restart-grace = 2
        cluster = "a=h:1@h:2,b=h:3@h:4,c=h:5@h:6"
        slot = "a"
        peer-listen = "127.0.0.1:3"
        peer-secret-file = "s"
        peer-tls-cert = "pc"
        peer-tls-key = "pk"
        peer-tls-ca = "pa"
        state-dir = "sd"
        init = true
        token-floor = 12
        admin = "127.0.0.1:2"
        admin-allow-remote = true
        log-format = "json"
        log-level = "debug"
        threads = 3
        max-connections = 4
        max-unauthenticated = 5
        max-in-flight = 6
        max-waiters-per-key = 7
        max-waiters = 8
        max-held = 9
        max-tombstones = 10
        max-unread-output = 11
    "#;
    let file: Options = toml::from_str(all).unwrap();
    let passed = Options::default().or(file.clone()).texts();
    assert_eq!(passed, file.texts());
    let flags = command().get_arguments().filter(|arg| arg.get_env().is_some()).count();
    assert_eq!(passed.len() + 1, flags, "every flag but --config stands in a file");
}

#[test]
fn every_flag_has_a_variable_of_its_name() {
    for arg in command().get_arguments().filter(|arg| arg.get_env().is_some()) {
        let expected = format!("TICKETING_{}", arg.get_long().unwrap().to_uppercase().replace('-', "_"));
        assert_eq!(arg.get_env().unwrap().to_str(), Some(&expected[..]));
    }
}

#[test]
fn an_unknown_line_of_the_file_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.toml");
    for (text, expected) in [
        ("threads = 1\nmax-hold = 5\n", ["line 2", "max-hold"]),
        ("max-held = -5\n", ["line 1", "max-held"]),
        ("listen = \"somewhere\"\n", ["line 1", "listen"]),
        ("client-token = \"not in a file of settings\"\n", ["line 1", "client-token"]),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Options::read(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
    let missing = Options::read(&folder.path().join("missing.toml")).unwrap_err().to_string();
    assert!(missing.contains("missing.toml"), "{missing}");
}

#[test]
fn other_machines_need_a_token() {
    for open in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
        assert!(refused(listening(open), None).contains("--client-token-file"));
        assert!(Config::new(listening(open), secrets(Some(TOKEN))).is_ok());
        let told = Options { insecure_no_auth: Some(true), ..listening(open) };
        assert!(Config::new(told, secrets(None)).is_ok());
    }
    for own in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
        assert!(Config::new(listening(own), secrets(None)).is_ok());
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let file = || Options { client_token_file: Some("t".into()), ..Options::default() };
    assert!(refused(file(), Some(TOKEN)).contains("exclude"));
    let no_auth = Options { insecure_no_auth: Some(true), ..file() };
    assert!(refused(no_auth, None).contains("exclude"));
    let no_auth = Options { insecure_no_auth: Some(true), ..Options::default() };
    assert!(refused(no_auth, Some(TOKEN)).contains("exclude"));
    let half = Options { tls_cert: Some("c".into()), ..Options::default() };
    assert!(refused(half, None).contains("--tls-key"));
    let half = Options { tls_key: Some("k".into()), ..Options::default() };
    assert!(refused(half, None).contains("--tls-cert"));
    assert!(refused(Options::default(), Some(b"fifteen bytes..")).contains("at least 16"));
    assert!(refused(Options::default(), Some(b"")).contains("at least 16"));
}

#[test]
fn admin_pages_stay_at_home_unless_told_otherwise() {
    let admin = |address: &str, remote| Options {
        admin: address.parse().ok(),
        admin_allow_remote: remote,
        ..Options::default()
    };
    assert!(refused(admin("0.0.0.0:1", None), None).contains("--admin-allow-remote"));
    assert!(refused(admin("0.0.0.0:1", Some(false)), None).contains("--admin-allow-remote"));
    assert!(Config::new(admin("0.0.0.0:1", Some(true)), secrets(None)).is_ok());
    assert!(Config::new(admin("127.0.0.1:1", None), secrets(None)).is_ok());
}

#[test]
fn an_advertised_address_can_be_told_to_clients() {
    let advertise = |text: &str| Options { advertise: Some(text.to_owned()), ..Options::default() };
    for good in ["locks.example.com:5225", "[::1]:5225", "10.0.0.1:1"] {
        assert!(Config::new(advertise(good), secrets(None)).is_ok(), "{good}");
    }
    let long = format!("{}:1", "h".repeat(127));
    for bad in [
        "host",
        ":1",
        "host:0",
        "host:99999",
        "host:+1",
        "two words:1",
        "a;b:1",
        "hôte:1",
        "",
        "::1:5225",
        "[::1:5225",
        "[host]:1",
        "http://x:5225",
        "http://[::1]:5225",
        &long,
    ] {
        assert!(refused(advertise(bad), None).contains("HOST:PORT"), "{bad}");
    }
}

#[test]
fn a_limit_of_zero_is_refused() {
    let none = Options { max_waiters: Some(0), ..Options::default() };
    assert_eq!(refused(none, None), "--max-waiters must be at least 1");
    let none = Options { threads: Some(0), ..Options::default() };
    assert_eq!(refused(none, None), "--threads must be at least 1");
    for many in [1025, u16::MAX] {
        let many = Options { threads: Some(many), ..Options::default() };
        assert!(refused(many, None).contains("at most 1024"));
    }
    assert!(Config::new(Options { threads: Some(1024), ..Options::default() }, secrets(None)).is_ok());
}

#[test]
fn the_page_of_settings_is_as_the_code_says() {
    let page = include_str!("../../../docs/settings.md");
    assert!(page == settings_page(), "make it again: ticketing-server docs settings > docs/settings.md");
}

/// Three nodes on this machine, of which this is one.
fn node(slot: &str) -> Options {
    Options {
        cluster: Some(
            "a=127.0.0.1:1@127.0.0.1:2,b=127.0.0.1:3@127.0.0.1:4,c=c.example:5@c.example:6".to_owned(),
        ),
        slot: Some(slot.to_owned()),
        peer_secret_file: Some("s".into()),
        ..Options::default()
    }
}

#[test]
fn a_node_serves_where_the_list_says() {
    let config = Config::new(node("b"), secrets(None)).unwrap();
    let membership = config.cluster.unwrap();
    assert_eq!((membership.slot, membership.listen.port(), config.listen.port()), (1, 3, 4));
    assert_eq!(config.advertise.as_deref(), Some("127.0.0.1:4"));
    let elsewhere = Options {
        listen: "0.0.0.0:9".parse().ok(),
        peer_listen: "0.0.0.0:8".parse().ok(),
        client_token_file: Some("t".into()),
        ..node("c")
    };
    let config = Config::new(elsewhere, secrets(None)).unwrap();
    assert_eq!((config.listen.port(), config.cluster.unwrap().listen.port()), (9, 8));
    assert_eq!(config.advertise.as_deref(), Some("c.example:6"));
}

#[test]
fn what_is_wrong_with_a_node_is_told() {
    assert!(refused(node("d"), None).contains("none of the nodes"));
    assert!(refused(Options { slot: None, ..node("a") }, None).contains("--slot"));
    assert!(refused(Options { cluster: Some("a=h:1@h:2".into()), ..node("a") }, None).contains("3 or 5"));
    assert!(refused(Options { peer_secret_file: None, ..node("a") }, None).contains("--peer-secret-file"));
    assert!(
        refused(Options { peer_listen: "127.0.0.1:9".parse().ok(), ..node("c") }, None).contains("--listen")
    );
    assert!(
        refused(Options { listen: "127.0.0.1:9".parse().ok(), ..node("c") }, None).contains("--peer-listen")
    );
    assert!(refused(Options { advertise: Some("h:1".into()), ..node("a") }, None).contains("--advertise"));
    assert!(refused(Options { restart_grace: Some(3), ..node("a") }, None).contains("--restart-grace"));
    let both = Secrets { client_token: None, peer_secret: Some(TOKEN.to_vec()) };
    assert!(Config::new(node("a"), both).unwrap_err().to_string().contains("exclude"));
    let short = Secrets { client_token: None, peer_secret: Some(b"short".to_vec()) };
    let environment = Options { peer_secret_file: None, ..node("a") };
    assert!(Config::new(environment, short).unwrap_err().to_string().contains("TICKETING_PEER_SECRET"));
    for (half, other) in [
        (Options { peer_tls_cert: Some("c".into()), ..node("a") }, "--peer-tls-key"),
        (Options { peer_tls_key: Some("k".into()), ..node("a") }, "--peer-tls-cert"),
        (Options { peer_tls_ca: Some("a".into()), ..node("a") }, "--peer-tls-cert"),
    ] {
        assert!(refused(half, None).contains(other));
    }
}

#[test]
fn a_wrong_line_is_explained_in_the_words_of_a_user() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.toml");
    for (line, told) in [
        ("max_held = 1", "did you mean `max-held`"),
        ("max-held = -1", "a whole number from 0 to 4294967295"),
        ("threads = 70000", "a whole number from 0 to 65535"),
        ("listen = \"localhost:5225\"", "names are not resolved"),
    ] {
        std::fs::write(&path, line).unwrap();
        let text = Options::read(&path).unwrap_err().to_string();
        assert!(text.contains(told) && text.contains("server.toml") && text.contains("line 1"), "{text}");
        assert!(!text.contains("u32") && !text.contains("u16"), "{text}");
    }
    std::fs::write(&path, "no-such-thing = 1").unwrap();
    assert!(!Options::read(&path).unwrap_err().to_string().contains("did you mean"));
}
