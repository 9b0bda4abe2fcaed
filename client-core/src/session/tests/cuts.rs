//! A connection that ends after any number of bytes: of which requests a byte
//! was handed over is known exactly, and only those are lost.

use super::*;

/// What the requests of `submit` look like on the wire, with the offset at
/// which each one starts.
fn requests() -> (Vec<u8>, Vec<(u64, usize)>) {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    let mut push = |id: u64, frame: ClientFrame<'_>| {
        starts.push((id, bytes.len()));
        frame.encode(&mut bytes);
    };
    push(1, ClientFrame::Acquire { wait: 30, lease: 10, owner: 1, key: key() });
    push(2, ClientFrame::Release { token: 22, key: key() });
    // An owner whose bytes are line feeds.
    push(0x0a0a_0a0a, ClientFrame::Acquire { wait: 10, lease: 10, owner: 0x0a0a_0a0a, key: key() });
    push(4, ClientFrame::Verify { owner: 44, key: key() });
    push(5, ClientFrame::Acquire { wait: 0, lease: 10, owner: 5, key: key() });
    (bytes, starts)
}

fn submit(rig: &mut Rig) {
    rig.acquire(1, 30);
    rig.release(2, 22);
    rig.acquire(0x0a0a_0a0a, 10);
    rig.verify(4, 44, START);
    rig.acquire(5, 0);
}

#[test]
fn after_every_cut_exactly_what_began_is_lost() {
    let (wire, starts) = requests();
    for cut in 0..=wire.len() {
        for step in [1, 2, 7, wire.len()] {
            let mut rig = Rig::new(true);
            submit(&mut rig);
            let mut out = Vec::new();
            while out.len() < cut {
                let bytes = rig.session.transmit(rig.now);
                let taken = step.min(cut - out.len()).min(bytes.len());
                out.extend_from_slice(&bytes[..taken]);
                rig.session.wrote(taken);
            }
            assert_eq!(out, wire[..cut], "cut at {cut} in steps of {step}");
            rig.end();
            let mut expected = starts
                .iter()
                .map(|&(id, start)| format!("{id} {}", if start < cut { "lost sent 0" } else { "unsent" }))
                .collect::<Vec<_>>();
            let mut told = rig.told();
            expected.sort();
            told.sort();
            assert_eq!(told, expected, "cut at {cut} in steps of {step}");
        }
    }
}

#[test]
fn bytes_that_were_offered_and_not_taken_were_not_handed_over() {
    let mut rig = Rig::new(true);
    submit(&mut rig);
    for _ in 0..3 {
        assert!(!rig.session.transmit(rig.now).is_empty());
        rig.session.write_blocked(rig.now);
    }
    rig.end();
    assert!(rig.told().iter().all(|told| told.ends_with("unsent")));
}

#[test]
fn a_failed_write_that_may_have_leaked_loses_all_that_was_offered() {
    let mut rig = Rig::new(true);
    submit(&mut rig);
    rig.write(3);
    assert!(!rig.session.transmit(rig.now).is_empty());
    rig.session.wrote_perhaps();
    // What came later was not offered.
    rig.acquire(6, 30);
    rig.end();
    let mut told = rig.told();
    told.sort();
    assert_eq!(told.pop().as_deref(), Some("6 unsent"));
    assert!(told.iter().all(|told| told.ends_with("lost sent 0")), "{told:?}");
}

#[test]
fn a_burst_larger_than_one_write_goes_out_whole_and_in_order() {
    let mut rig = Rig::new(true);
    for owner in 0..5000 {
        rig.acquire(owner, 30);
    }
    let mut seen = Vec::new();
    loop {
        let frames = rig.write(10_007);
        if frames.is_empty() {
            break;
        }
        seen.extend(frames);
    }
    let expected = (0..5000).map(|owner| format!("A {owner} wait 30 lease 10")).collect::<Vec<_>>();
    assert_eq!(seen, expected);
}
