//! Plays one script on one connection.

use std::time::{Duration, Instant};

use ticketing_protocol::handshake;
use tokio::time::{sleep, timeout};

use crate::frames::{self, Pattern, shown};
use crate::scenario::{Answer, Cut, DOMAIN, ExpectResponse, Greet, How, Open, Request, SendPieces, Step};
use crate::stage::{ConnectionId, Stage};
use crate::wire::Wire;

/// Why a script did not come to its end.
pub(crate) enum Stop {
    /// The client did something else than the script says.
    Wrong(String),
    /// The client ended the connection where something was to come.
    Ended,
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

pub(crate) struct Connection<'a> {
    id: ConnectionId,
    stage: &'a Stage,
    /// `None` once the script has reset it.
    wire: Option<Wire>,
    /// Received and not looked at yet.
    pending: Vec<u8>,
    own_address: &'a str,
    nonce: String,
    offered_extension: bool,
}

impl<'a> Connection<'a> {
    pub(crate) const fn new(id: ConnectionId, stage: &'a Stage, own_address: &'a str, wire: Wire) -> Self {
        Self {
            id,
            stage,
            wire: Some(wire),
            pending: Vec::new(),
            own_address,
            nonce: String::new(),
            offered_extension: false,
        }
    }

    /// Plays the script, then watches that nothing more comes until the client
    /// ends the connection.
    pub(crate) async fn play(&mut self, script: &[Step]) -> Result<(), Stop> {
        for (index, step) in script.iter().enumerate() {
            self.stage.at_step(&self.id, Some(format!("step {}, {step:?}", index + 1)));
            self.step(step).await.map_err(|stop| match stop {
                Stop::Wrong(why) => Stop::Wrong(format!("{}, step {}: {why}", self.id, index + 1)),
                Stop::Ended => Stop::Ended,
            })?;
        }
        self.stage.at_step(&self.id, None);
        self.nothing_more().await.map_err(|why| format!("{}: {why}", self.id).into())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Open(open) => self.open(open).await,
            Step::Greet(greet) => self.greet(greet).await,
            Step::ExpectResponse(expected) => self.expect_response(expected).await,
            Step::ExpectLine(expected) => self.expect_line(expected).await,
            Step::Expect(request) => self.expect_all(std::slice::from_ref(request)).await,
            Step::ExpectAll(requests) => self.expect_all(requests).await,
            Step::Send(answers) => {
                let bytes = self.encoded(answers)?;
                self.write(&bytes).await
            }
            Step::SendPieces(pieces) => self.send_pieces(pieces).await,
            Step::Cut(cut) => self.cut(cut).await,
            Step::Close(how) => self.close(*how).await,
            Step::Signal(name) => {
                self.stage.signal(name);
                Ok(())
            }
            Step::Await(name) => {
                self.stage.signalled(name).await;
                Ok(())
            }
            Step::Since(since) => Ok(self.stage.since(since)?),
            Step::ExpectSilenceMs(ms) => self.expect_silence(Duration::from_millis(*ms)).await,
            Step::ExpectKeepAlive(expected) => {
                let start = Instant::now();
                while self.pending.is_empty() {
                    self.read().await?;
                }
                if self.pending.remove(0) != b'\n' {
                    return Err(self.unexpected("a keep-alive"));
                }
                let ms = start.elapsed().as_secs_f64() * 1000.0;
                if expected.within_ms.contains_ms(ms) {
                    return Ok(());
                }
                Err(format!("a keep-alive after {ms:.1} ms; expected {}", expected.within_ms).into())
            }
            Step::ExpectEnd(_) => Ok(self.nothing_more().await?),
            Step::DiscardUntilEnd(_) => {
                while self.read().await.is_ok() {
                    self.pending.clear();
                }
                Ok(())
            }
            Step::TlsFails(_) => {
                Err("this step belongs first into a script of a node with TLS".to_owned().into())
            }
        }
    }

    async fn open(&mut self, open: &Open) -> Result<(), Stop> {
        let (line, domain, nonce) = (open.line.clone(), open.domain.clone(), open.nonce.clone());
        self.greet(&Greet { line, ext: open.ext, domain, nonce }).await?;
        let token = open.token.clone();
        self.expect_response(&ExpectResponse { token, ..ExpectResponse::default() }).await?;
        let leader = open.leader.clone().unwrap_or_else(|| self.own_address.to_owned());
        let bytes = self.encoded(&[Answer::Leader(leader)])?;
        self.write(&bytes).await
    }

    async fn greet(&mut self, greet: &Greet) -> Result<(), Stop> {
        let line = match &greet.line {
            Some(line) => line.clone(),
            None => {
                let mut line = String::from("TICKETING/1");
                match greet.domain.as_deref() {
                    Some("none") => {}
                    Some(domain) => line += &format!(";domain={domain}"),
                    None => line += &format!(";domain={DOMAIN}"),
                }
                line += &format!(";node=1;self={}", self.own_address);
                line += if greet.ext.unwrap_or(true) { ";ext=1" } else { "" };
                let nonce = greet.nonce.clone();
                line + " " + &nonce.unwrap_or_else(|| handshake::nonce(rand::random()))
            }
        };
        let (head, nonce) = line.rsplit_once(' ').unwrap_or((&line, ""));
        (self.nonce, self.offered_extension) = (nonce.to_owned(), head.contains(";ext=1"));
        self.write(format!("{line}\n").as_bytes()).await
    }

    async fn expect_response(&mut self, expected: &ExpectResponse) -> Result<(), Stop> {
        let nonce = expected.nonce.as_deref().unwrap_or(&self.nonce);
        let extension = expected.ext.unwrap_or(self.offered_extension);
        let tail = if extension { ";ext=1" } else { "" };
        let line = handshake::digest(expected.token.as_bytes(), nonce) + tail;
        self.expect_line(&line).await
    }

    async fn expect_line(&mut self, expected: &str) -> Result<(), Stop> {
        loop {
            if let Some(at) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=at).collect();
                if line[..at] == *expected.as_bytes() {
                    return Ok(());
                }
                return Err(format!("expected the line {expected:?}, got {:?}", shown(&line)).into());
            }
            self.read().await?;
        }
    }

    /// Reads as many frames as there are requests; each must be one of them.
    async fn expect_all(&mut self, requests: &[Request]) -> Result<(), Stop> {
        let mut missing: Vec<&Request> = requests.iter().collect();
        while !missing.is_empty() {
            let frame = self.frame().await?;
            let known = self.stage.with_owners(|owners| {
                let fits = |request: &&Request| Pattern::new(request, owners).is(&frame);
                let at = missing.iter().position(fits)?;
                Some(Pattern::new(missing.remove(at), owners).bind(&frame, owners))
            });
            match known {
                Some(bound) => bound?,
                None => {
                    return Err(format!("expected {}, got {:?}", any_of(&missing), shown(&frame)).into());
                }
            }
        }
        Ok(())
    }

    /// The next frame, keep-alives before it skipped.
    async fn frame(&mut self) -> Result<Vec<u8>, Stop> {
        loop {
            self.skip_keep_alives();
            let length = frames::length(&self.pending);
            match length.map_err(|why| format!("{why}: {:?}", shown(&self.pending)))? {
                Some(length) => return Ok(self.pending.drain(..length).collect()),
                None => self.read().await?,
            }
        }
    }

    fn skip_keep_alives(&mut self) {
        let count = self.pending.iter().take_while(|&&byte| byte == b'\n').count();
        self.pending.drain(..count);
    }

    async fn expect_silence(&mut self, pause: Duration) -> Result<(), Stop> {
        let silence = async {
            loop {
                self.skip_keep_alives();
                if !self.pending.is_empty() {
                    return self.unexpected("silence");
                }
                if let Err(stop) = self.read().await {
                    return stop;
                }
            }
        };
        timeout(pause, silence).await.map_or(Ok(()), Err)
    }

    fn unexpected(&self, expected: &str) -> Stop {
        format!("expected {expected}, got {:?}", shown(&self.pending)).into()
    }

    fn encoded(&self, answers: &[Answer]) -> Result<Vec<u8>, String> {
        self.stage.with_owners(|owners| {
            let all: Result<Vec<_>, _> =
                answers.iter().map(|answer| frames::answer(answer, owners)).collect();
            all.map(|frames| frames.concat())
        })
    }

    async fn send_pieces(&mut self, pieces: &SendPieces) -> Result<(), Stop> {
        let mut bytes = self.encoded(&pieces.frames)?;
        bytes.truncate(pieces.only_first.unwrap_or(usize::MAX));
        for piece in bytes.chunks(pieces.bytes.unwrap_or(usize::MAX).max(1)) {
            self.write(piece).await?;
            sleep(Duration::from_millis(pieces.pause_ms)).await;
        }
        Ok(())
    }

    /// Takes the first `after` bytes of the frame and closes. What the client
    /// sent of that frame besides still arrives after an end of stream; more
    /// than that frame must not.
    async fn cut(&mut self, cut: &Cut) -> Result<(), Stop> {
        let pattern = self.stage.with_owners(|owners| Pattern::new(&cut.frame, owners));
        loop {
            self.skip_keep_alives();
            if self.pending.len() >= cut.after {
                break;
            }
            self.read().await?;
        }
        if !pattern.begins_with(&self.pending[..cut.after]) {
            return Err(self.unexpected(&format!("{:?}", cut.frame)));
        }
        self.close(cut.how).await?;
        while self.wire.is_some() && self.read().await.is_ok() {}
        let length = frames::length(&self.pending)?.unwrap_or(self.pending.len());
        if !pattern.begins_with(&self.pending[..length]) {
            return Err(self.unexpected(&format!("{:?}", cut.frame)));
        }
        let frame: Vec<u8> = self.pending.drain(..length).collect();
        Ok(self.stage.with_owners(|owners| pattern.bind(&frame, owners))?)
    }

    async fn close(&mut self, how: How) -> Result<(), Stop> {
        self.stage.record(format_args!("{} closes: {how:?}", self.id));
        let closed = match (how, self.wire.as_mut()) {
            (_, None) => return Err("the connection is closed already".to_owned().into()),
            (How::Fin, Some(wire)) => wire.end(),
            (How::CloseNotify, Some(wire)) => wire.end_politely().await,
            (How::Rst, Some(_)) => self.wire.take().map_or(Ok(()), Wire::reset),
        };
        // A client that has closed first has what it wants.
        drop(closed);
        Ok(())
    }

    async fn nothing_more(&mut self) -> Result<(), String> {
        loop {
            self.skip_keep_alives();
            if !self.pending.is_empty() {
                // What else is on its way belongs into the report.
                let _ =
                    timeout(Duration::from_millis(50), async { while self.read().await.is_ok() {} }).await;
                return Err(format!("nothing more was to come, got {:?}", shown(&self.pending)));
            }
            if self.read().await.is_err() {
                return Ok(());
            }
        }
    }

    async fn read(&mut self) -> Result<(), Stop> {
        let had = self.pending.len();
        let read = match &mut self.wire {
            Some(wire) => wire.read(&mut self.pending).await,
            None => 0,
        };
        if read == 0 {
            return Err(Stop::Ended);
        }
        self.stage.received(&self.id, &self.pending[had..]);
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.stage.record(format_args!("{} -> {}", self.id, shown(bytes)));
        match &mut self.wire {
            Some(wire) => wire.write(bytes).await.map_err(|_| Stop::Ended),
            None => Err("the connection is closed already".to_owned().into()),
        }
    }
}

fn any_of(requests: &[&Request]) -> String {
    let mut text: Vec<String> = requests.iter().take(3).map(|request| format!("{request:?}")).collect();
    if requests.len() > text.len() {
        text.push(format!("{} more", requests.len() - text.len()));
    }
    text.join(" or ")
}
