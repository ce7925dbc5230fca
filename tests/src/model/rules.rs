//! Every rule by name, each of which can be taken out.
//!
//! A rule has the sentence that it is, and the interleaving that it closes. A model run without a rule
//! must find that interleaving: where none is found, either the rule is not needed or the model is too
//! small to see it, and [`crate::model::mutations`] says which.

macro_rules! rules {
    ($($name:ident: $sentence:literal, $closes:literal;)*) => {
        /// A rule of the protocol, as the model can take it out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule { $(#[doc = $sentence] $name,)* }

        impl Rule {
            /// All rules, in the order of the protocol.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The rule as one sentence.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }

            /// What happens without it.
            #[must_use]
            pub fn closes(self) -> &'static str {
                match self { $(Self::$name => $closes,)* }
            }

            /// The name used on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

rules! {
    // The gate.
    WatermarkConditional: "A watermark moves only from the row that was read.",
        "Two authority processes read one watermark and both grant from it.";
    GuardByGeneration: "A transaction is guarded by the open state and the generation that the process verified.",
        "A process that paused through a quarantine goes on granting in it.";
    SyncProof: "Where a synchronous standby is required, an answer waits until it has the row.",
        "A cancelled synchronous wait: the standby is promoted without the row whose answer left.";
    WitnessBeforeAnswer: "No answer leaves before the witness names its row.",
        "The witness is raised after the answer: the store goes back in between and the witness agrees with it.";
    WitnessAfterCommit: "The witness is raised only when the row is committed.",
        "A witness that is raised first names a row which is never committed: the next start is taken for a loss.";
    WitnessHeeded: "A required witness that names a row which the store lacks stops the answer.",
        "A standby that lagged is promoted and grants anew what the witness says was granted.";
    EmptyWitnessNotRefilled: "Only who initialised the store or lifted by testimony fills an empty witness.",
        "The witness is lost, the store put back: it fills the witness with its old marks and is believed.";
    StoreReadAtGate: "The gate reads the store once more: open, in the row's generation, with the row.",
        "A process that paused before its gate answers a row that a quarantine has left behind.";
    IdentityChecked: "A database that was started or replaced under a living process is judged anew.",
        "The database is put back under a process that goes on with what it verified before.";
    // Replays.
    ReplayUntilConfirmed: "A row is replayed only until it is confirmed.",
        "A region's store is put back to its pending request; the range that it used comes once more.";
    ReplayInOwnGeneration: "A row is replayed only in the generation that wrote it.",
        "Lifted at a watermark below an unanswered row, the same numbers lie in that row and in a new one.";
    EpochChecked: "An old epoch gets nothing: no grant, no replay, no adoption.",
        "A copy of a region's store that was fenced off goes on with its pending request.";
    EpochKept: "An epoch above the known one is kept at once, like every other word about the roster.",
        "The authority forgot an epoch, lifts alone, and is put into quarantine by the region's next message, for ever.";
    AdoptOnlyPending: "An answer is adopted only for a request that is pending.",
        "An answer that was delivered twice is adopted twice.";
    PromiseKept: "After a promise nothing of a lower generation is adopted.",
        "A late answer of the old store is adopted after its region testified without it.";
    // Marks, testimony, roster.
    MarkNamesRow: "A store is current with a mark only if it contains the row that the mark names.",
        "A store that went back counts past the sequence that it lost and looks newer.";
    LookBeforeDoubt: "A process looks at the store's rows before it takes a higher generation for a proof.",
        "Another process opened a generation, a region promised it, and this one, which did not look, calls it a loss.";
    SeenKeepsBound: "Of two marks the newer is kept, and the higher bound of both.",
        "A mark of a history that was given up hides behind a newer one with a lower bound, and is never contained.";
    UnknownRegionHeard: "A region that is not in the roster is judged by the marks that it presents.",
        "The store forgot the region, and goes on as if nothing was missing.";
    MarksHeard: "The authority compares the marks of every request with its rows.",
        "The store went back under a best-effort witness or none; a region knows better and is not heard.";
    ComparedWithBase: "A mark of an older generation is compared with the base, never with the watermark.",
        "A restored store grants up to the bound that it lost, and then contains the mark.";
    BaseRecorded: "A lift records what it was raised to as its base.",
        "Marks of rows that were given up are never contained again: every request brings a new quarantine.";
    AnswersCarryMarks: "Answers and heartbeats carry the newest mark of every namespace, asked for or not.",
        "A region that asked for nothing knows the roster of its time and not how far the others were given.";
    FirstGrantWaits: "A region's first grant waits until others hold the roster that names it.",
        "A region that was registered after the backup is forgotten with all that it was given.";
    EstablishedVouches: "Only an established region can vouch for a new one.",
        "Two new regions vouch for each other; a restore forgets them both.";
    RosterOfGeneration: "A roster mark of another generation says nothing about entries: the whole roster is sent, and who vouches has heard of this generation.",
        "An entry that came by union, or from another history, is older than what others testify: they never get it, and are taken to hold it.";
    HolderIsEstablished: "A region that testified that it held something is established, also where its grants were forgotten.",
        "The store forgot the grants of those who live; nobody is established, and nobody can vouch.";
    SuccessorOfAll: "Where every established region is retired, a required witness vouches for the next one.",
        "The last region that held a grant is retired, and nobody can ever vouch for a new one.";
    EstablishedRemains: "The region for whose sake another may retire is itself established.",
        "The only established region retires for the sake of a new one, which nobody can vouch for any more.";
    RetireWaits: "Retiring waits until the roster is held by another region or the required witness.",
        "The only one that remembers is sent away, then the store is put back.";
    RetireWaitsForMarks: "Retiring waits until a region that stays holds the retired one's marks of every namespace too.",
        "Those that stay know that it is retired, and not how far it was given.";
    // Quarantine.
    StartIsSuspect: "A start without an agreeing required witness is a suspicion.",
        "A backup is started where there is no witness, and grants at once.";
    GenerationAboveWitness: "A generation is opened, and a quarantine ended, only above the witness's.",
        "Two copies have one generation, and each takes the promises given to the other.";
    EmptyWitnessReopens: "A witness that is lost within a quarantine opens a new generation: testimony starts anew.",
        "Another copy was lifted by the witness alone and granted; then the witness is lost, and this copy lifts by testimony from before.";
    TestimonyComplete: "A quarantine ends by testimony only when every region of the united roster has testified.",
        "The one region that holds what was lost is silent, and it is granted anew.";
    TestimonyOfGeneration: "Testimony counts only for the generation that was promised with it.",
        "An old testimony is used in a later quarantine.";
    StatedOfGeneration: "A stated bound belongs to one generation.",
        "A bound that was stated before a restore is used after it, when the region holds more.";
    OperatorWaits: "A stated bound counts one request deadline after the old store was stopped.",
        "A late answer is adopted after the operator read the bound.";
    BoundReadAfterWait: "A bound is stated only when the old store has been stopped for one request deadline.",
        "The bound is right when it is stated and wrong when the wait is over: an answer was still on its way.";
    StatedAboveKnown: "A stated bound below a known mark is refused.",
        "The operator read the bound from a copy that went back itself.";
    OperatorStatesDefinition: "With the bound of a silent region an operator states the definitions that it may have issued under.",
        "The bound is right in ordinals; the definition that only the silent region knew is forgotten, and values repeat.";
    ExitTwoHoldsRoster: "A store is raised to its witness alone only if the roster that it names is held.",
        "The witness has marks, not entries: raised alone, the store has forgotten definitions and epochs.";
    // Regions.
    UnprovenStart: "A region's store that was started is dry until a witness or the authority confirms it.",
        "A store that was put back carves once more what it carved before.";
    HolderWentBack: "A region's store that lacks the row that others keep of it went back: it burns, epoch + 1.",
        "A store that was put back is confirmed although the authority kept a later row of it.";
    KeptUntilProven: "The authority keeps a store's mark until the store is proved; an unproven message does not replace it.",
        "The answer that carries the kept row is lost, and the next one carries the row of the store that was put back.";
    KeptNeverFalls: "A mark that is kept of a store is never replaced by a lower one of the same store.",
        "A late message of another agent of the store lowers it, and a store that was put back is confirmed.";
    EmptyWitnessBurns: "A region's store that had a required witness and finds it empty burns what it held.",
        "Store put back and witness lost: the authority confirms what the store carved before.";
    BurnDropsPending: "A burn drops the pending requests.",
        "A pending id of the old epoch is asked for ever and never answered.";
    CarveDurable: "A carve is durable before a number of it is exposed.",
        "The agent is killed between the two, and carves the same numbers again.";
    CarveConditional: "A carve moves the cursor only from where it was read.",
        "Two agents of one store read one cursor and both carve from it.";
    CopyBurns: "An embedded store that is opened in another place may be a copy: it carves nothing before its next epoch.",
        "A store is copied together with its witness, which vouches for the copy; both carve the same grants.";
    SessionsNumbered: "Two live sessions of an embedded store, or one number held twice, are copies: one ends.",
        "Two copies of one store are alive, and the authority goes on answering both.";
    ChainChecked: "A request presents the token of the last answer.",
        "Two copies of one process are alive, and the authority goes on answering both.";
    DefinitionLocked: "A definition takes effect at the watermark, in the transaction that locks it.",
        "Ordinals above the new definition's beginning are granted under the old one.";
    GrantNamesDefinition: "A range is issued under the definition that its grant was made under, and under no other.",
        "A region without a grant learned a definition that a restore forgot; later it issues under it, alone.";
}

/// The rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules(u64);

impl Rules {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self(u64::MAX)
    }

    /// All of these but one.
    #[must_use]
    pub fn without(self, rule: Rule) -> Self {
        Self(self.0 & !(1 << rule as u64))
    }

    /// Whether a rule is in force.
    #[must_use]
    pub fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u64) != 0
    }
}

impl std::str::FromStr for Rule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|r| r.name().eq_ignore_ascii_case(text));
        found.copied().ok_or_else(|| format!("no rule {text}; one of: {}", names()))
    }
}

fn names() -> String {
    Rule::ALL.iter().map(|r| r.name()).collect::<Vec<_>>().join(", ")
}
