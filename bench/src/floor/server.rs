//! The echo server: one task a connection; all that one read brought is answered by one write.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{encode, head};

const BUFFER_BYTES: usize = 64 * 1024;

/// Serves until accepting fails.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails ends alone; its client tells.
        tokio::spawn(echo(stream));
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut input = Vec::with_capacity(BUFFER_BYTES);
    let mut output = Vec::with_capacity(BUFFER_BYTES);
    while stream.read_buf(&mut input).await? > 0 {
        let used = answer(&input, &mut output)?;
        input.drain(..used);
        stream.write_all(&output).await?;
        output.clear();
    }
    Ok(())
}

/// Answers every complete frame and says how many bytes they had.
fn answer(input: &[u8], output: &mut Vec<u8>) -> io::Result<usize> {
    let mut rest = input;
    while let Some((exchange, id)) = head(rest)? {
        let Some((_, after)) = rest.split_at_checked(exchange.request_bytes) else { break };
        encode(exchange.op, id, exchange.answer_bytes, output);
        rest = after;
    }
    Ok(input.len() - rest.len())
}
