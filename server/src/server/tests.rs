use tokio::time::timeout;

use super::*;
use crate::config::{Options, Secrets};

const PATIENCE: Duration = Duration::from_secs(20);

async fn server() -> Server {
    let any_port = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let options = Options { listen: any_port, admin: any_port, ..Options::default() };
    Server::start(Config::new(options, Secrets::default()).unwrap()).await.unwrap()
}

/// What /readyz says, if it is served.
async fn ready(server: &Server) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mut admin = tokio::net::TcpStream::connect(server.admin_addr().unwrap()).await.unwrap();
    admin.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.unwrap();
    let mut page = String::new();
    admin.read_to_string(&mut page).await.unwrap();
    page.starts_with("HTTP/1.0 200")
}

#[tokio::test]
async fn a_task_that_everything_hangs_on_does_not_end_unnoticed() {
    let tasks: [fn(&Server) -> &JoinHandle<()>; 2] = [|server| &server.driver, |server| &server.listener];
    for task in tasks {
        let mut server = server().await;
        assert!(ready(&server).await);
        assert!(timeout(Duration::from_millis(50), server.failed()).await.is_err());
        task(&server).abort();
        timeout(PATIENCE, server.failed()).await.unwrap();
        assert!(!ready(&server).await);
    }
    let mut server = server().await;
    server.admin.as_ref().unwrap().abort();
    timeout(PATIENCE, server.failed()).await.unwrap();
}
