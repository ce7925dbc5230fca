//! File systems of a test's own: full ones, read-only ones, and one whose power is cut.
//!
//! Everything lies in the test's scratch folder and goes with it: loop devices free themselves when they
//! are unmounted, and the watchdog unmounts what a killed test left. Needs root and loop devices; a test
//! asks [`available`] first, which fails where they must be there (as root, in CI) and says plainly
//! where a test was not run for want of them.
//!
//! The power cut: a store lies on ext4, ext4 on an image file, the image on an xfs that can clone files.
//! Cloning the image is instant and atomic: the clone holds exactly what the kernel had sent to the
//! "disk" by then. What was still in the page cache is lost, as it is when the power goes. The journal
//! is committed every 300 s only, so that nothing but an fsync makes anything durable.

use crate::scratch::Scratch;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Room for the images, near the least that xfs accepts; sparse, so it costs what is written.
const POOL_BYTES: u64 = 320 << 20;
const DISK_BYTES: u64 = 48 << 20;

/// Whether this process can mount what its test needs. Where it must be able to, it fails instead.
pub fn available(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    let lack = if root { lacking() } else { Some("it needs root".to_owned()) };
    let Some(lack) = lack else {
        return true;
    };
    assert!(
        !root && std::env::var_os("CI").is_none(),
        "{test} cannot run: {lack} (`ops/test`, as root on a machine with loop devices, installs what it needs)"
    );
    say(&format!("NOT RUN: {test}: {lack}"));
    false
}

/// Prints past the capture of passing tests' output.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn lacking() -> Option<String> {
    let tools = ["mkfs.xfs", "mkfs.ext4", "mount", "umount", "cp"];
    let missing = tools.iter().find(|tool| !works(Command::new("sh").args(["-c", &format!("command -v {tool}")])));
    if let Some(tool) = missing {
        return Some(format!("there is no {tool}"));
    }
    let loops = Path::new("/dev/loop-control").exists();
    (!loops).then(|| "there is no /dev/loop-control".to_owned())
}

fn works(command: &mut Command) -> bool {
    run(command).is_ok()
}

/// The tools lie in sbin, which is not on everybody's path.
fn run(command: &mut Command) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command
        .env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end()))
}

fn must(command: &mut Command) {
    run(command).unwrap_or_else(|error| panic!("{error}"));
}

/// A mounted file system. Dropped, it is unmounted.
pub struct Mount {
    at: PathBuf,
    // Last: removed after it is unmounted.
    _folder: Scratch,
}

impl Mount {
    /// A file system in memory of at most this size, such as `4m`.
    pub fn tmpfs(size: &str) -> Self {
        let options = format!("size={size},mode=755");
        Self::with(&["-t", "tmpfs", "-o", &options, "tmpfs"])
    }

    /// An ext4 of its own on a disk of its own; `image` outlives it, and can be mounted again.
    pub fn ext4(image: &Path) -> Self {
        if !image.exists() {
            make_ext4(image);
        }
        Self::image(image, "errors=remount-ro")
    }

    /// An image file.
    fn image(image: &Path, options: &str) -> Self {
        let image = image.display().to_string();
        Self::with(&["-o", &format!("loop,{options}"), &image])
    }

    fn with(arguments: &[&str]) -> Self {
        let folder = Scratch::new("mount");
        let at = folder.path().join("at");
        std::fs::create_dir(&at).expect("the folder is ours");
        must(Command::new("mount").args(arguments).arg(&at));
        Self { at, _folder: folder }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Writes until nothing more fits; returns how many bytes that were.
    pub fn fill(&self) -> u64 {
        let mut filler = File::options().create(true).append(true).open(self.filler()).expect("a file can be made");
        let mut filled = 0;
        // Down to single bytes, so that not even a page's rest is left.
        for size in [1 << 16, 1 << 12, 1] {
            while let Ok(written) = filler.write(&vec![7; size]) {
                filled += written as u64;
            }
        }
        filled
    }

    /// Makes room again.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).expect("the filler can be removed");
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    /// Changes the mount's options, such as `ro`; refused while a file is open for writing.
    pub fn remount(&self, options: &str) {
        must(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.at));
    }

    /// Turns an ext4 read-only under the feet of whoever writes on it, as the kernel does after an error of
    /// the disk. Only unmounting ends it.
    pub fn turn_read_only(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("Linux has it");
        let mut lines = mounts.lines().map(|line| line.split(' '));
        let device = lines.find_map(|mut words| {
            let device = words.next()?;
            (Path::new(words.next()?) == self.at).then(|| device.trim_start_matches("/dev/").to_owned())
        });
        let device = device.expect("it is mounted from a device");
        std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").expect("ext4 can be told to fail");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A process that was just killed may hold it for a moment.
        for _ in 0..50 {
            if works(Command::new("umount").arg(&self.at)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = run(Command::new("umount").arg("-l").arg(&self.at));
    }
}

/// A disk whose power can be cut: see the module's documentation.
pub struct Disk {
    // In this order: the disk lies on the pool.
    disk: Option<Mount>,
    image: PathBuf,
    pool: Mount,
    cuts: AtomicU32,
}

impl Disk {
    /// An empty one.
    pub fn new() -> Self {
        let folder = Scratch::new("pool");
        let pool = folder.path().join("pool.xfs");
        sparse(&pool, POOL_BYTES);
        must(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&pool));
        let pool = Mount::image(&pool, "noatime");
        // The loop device holds the file; its name is not needed any more.
        drop(folder);
        let image = pool.path().join("disk.img");
        make_ext4(&image);
        let disk = Some(late(&image));
        Self { disk, image, pool, cuts: AtomicU32::new(0) }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.disk.as_ref().expect("it is mounted").path()
    }

    /// The disk fails from now on: what would need a new place on it cannot be written, and the fsync of it
    /// fails. The kernel forgets that it was never written, as it does with any disk.
    pub fn break_down(&self) {
        let filler = self.filler();
        for size in ["64M", "4M", "256K", "4K"] {
            let mut number = 0;
            while works(Command::new("fallocate").args(["-l", size]).arg(filler.join(format!("{size}-{number}")))) {
                number += 1;
            }
        }
    }

    /// The disk is repaired: new writes succeed. What failed before stays unwritten.
    pub fn repair(&self) {
        std::fs::remove_dir_all(self.filler()).expect("the filler can be removed");
    }

    fn filler(&self) -> PathBuf {
        let filler = self.pool.path().join("filler");
        std::fs::create_dir_all(&filler).expect("the pool is ours");
        filler
    }

    /// The power goes now: what the disk holds at this instant. The disk itself goes on, so one life of
    /// a process can be cut many times.
    pub fn cut(&self) -> Cut {
        let number = self.cuts.fetch_add(1, Ordering::Relaxed);
        let image = self.pool.path().join(format!("cut-{number}.img"));
        must(Command::new("cp").arg("--reflink=always").arg(&self.image).arg(&image));
        Cut(image)
    }

    /// The machine comes back: the disk is what it was at that instant. Whoever writes on it was killed.
    pub fn power_on(&mut self, cut: Cut) {
        drop(self.disk.take());
        std::fs::rename(&cut.0, &self.image).expect("both lie on the pool");
        self.disk = Some(late(&self.image));
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

/// What a disk held when its power was cut. Dropped, it is forgotten.
pub struct Cut(PathBuf);

impl Cut {
    /// Mounts it, which recovers the file system as a start of the machine would.
    pub fn mount(&self) -> Mount {
        late(&self.0)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Nothing but an fsync makes anything durable on it.
fn late(image: &Path) -> Mount {
    Mount::image(image, "noatime,commit=300")
}

fn make_ext4(image: &Path) {
    sparse(image, DISK_BYTES);
    let at_once = "lazy_itable_init=0,lazy_journal_init=0";
    must(Command::new("mkfs.ext4").args(["-q", "-E", at_once]).arg(image));
}

fn sparse(path: &Path, bytes: u64) {
    let file = File::create(path).expect("a file can be made");
    file.set_len(bytes).expect("a sparse file takes no room");
}
