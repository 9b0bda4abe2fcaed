//! A request to the admin address of a server.

use std::net::SocketAddr;
use std::time::Duration;

use ticketing_server::OPERATOR_HEADER;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// No answer is longer.
const LONGEST: u64 = 1 << 20;

pub(crate) async fn get(admin: SocketAddr, path: &str) -> Result<String, String> {
    request(admin, "GET", path).await
}

pub(crate) async fn post(admin: SocketAddr, path: &str) -> Result<String, String> {
    request(admin, "POST", path).await
}

async fn request(admin: SocketAddr, method: &str, path: &str) -> Result<String, String> {
    if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(format!("{path:?} cannot be asked for"));
    }
    let wrong =
        |error: std::io::Error| format!("{admin}: {error} (is it the --admin address of a running server?)");
    let exchange = async {
        let mut stream = TcpStream::connect(admin).await?;
        let head = format!(
            "{method} {path} HTTP/1.0\r\nhost: {admin}\r\n{OPERATOR_HEADER}: 1\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        Ok(answer)
    };
    let answer = timeout(PATIENCE, exchange).await.map_err(|_| format!("{admin} does not answer"))?;
    let answer = String::from_utf8_lossy(&answer.map_err(wrong)?).into_owned();
    let nonsense = || format!("{admin} does not speak HTTP (is it the --admin address of a server?)");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(nonsense)?;
    let status = head.split(' ').nth(1).ok_or_else(nonsense)?;
    if status == "200" { Ok(body.to_owned()) } else { Err(body.trim().to_owned()) }
}
