//! Protocol errors: one table of names and of the numbers that each version has for them.

use crate::version::Version;

/// Vendor of an error's number: the standard's own, Nicira's, the Open Networking Foundation's.
const STD: u32 = 0;
const NX: u32 = crate::vendor::NX;
const ONF: u32 = crate::vendor::ONF;

/// (first version - 1, last version - 1, vendor, type, code)
type Span = (u8, u8, u32, u16, u16);

macro_rules! errors {
    ($($id:ident = $name:literal: $($span:expr),*;)*) => {
        /// An error that a message can be answered with. Names follow the protocol's, without `OFP`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum OfError { $($id),* }

        impl OfError {
            /// Every error of the table.
            pub const ALL: &[OfError] = &[$(OfError::$id),*];

            /// The protocol's name, e.g. `OFPBRC_BAD_LEN`.
            pub const fn name(self) -> &'static str {
                match self { $(OfError::$id => $name),* }
            }

            const fn spans(self) -> &'static [Span] {
                match self { $(OfError::$id => &[$($span),*]),* }
            }
        }
    };
}

errors! {
    HfcIncompatible = "OFPHFC_INCOMPATIBLE": (0, 5, STD, 0, 0);
    HfcEperm = "OFPHFC_EPERM": (0, 5, STD, 0, 1);
    BrcBadVersion = "OFPBRC_BAD_VERSION": (0, 5, STD, 1, 0);
    BrcBadType = "OFPBRC_BAD_TYPE": (0, 5, STD, 1, 1);
    BrcBadStat = "OFPBRC_BAD_STAT": (0, 5, STD, 1, 2);
    BrcBadVendor = "OFPBRC_BAD_VENDOR": (0, 5, STD, 1, 3);
    BrcBadSubtype = "OFPBRC_BAD_SUBTYPE": (0, 5, STD, 1, 4);
    BrcEperm = "OFPBRC_EPERM": (0, 5, STD, 1, 5);
    BrcBadLen = "OFPBRC_BAD_LEN": (0, 5, STD, 1, 6);
    BrcBufferEmpty = "OFPBRC_BUFFER_EMPTY": (0, 5, STD, 1, 7);
    BrcBufferUnknown = "OFPBRC_BUFFER_UNKNOWN": (0, 5, STD, 1, 8);
    BrcBadTableId = "OFPBRC_BAD_TABLE_ID": (0, 0, NX, 1, 512), (1, 5, STD, 1, 9);
    BrcIsSecondary = "OFPBRC_IS_SECONDARY": (0, 1, STD, 1, 5), (2, 5, STD, 1, 10);
    BrcBadPort = "OFPBRC_BAD_PORT": (0, 1, NX, 1, 514), (2, 5, STD, 1, 11);
    BrcBadPacket = "OFPBRC_BAD_PACKET": (2, 5, STD, 1, 12);
    BrcMultipartBufferOverflow = "OFPBRC_MULTIPART_BUFFER_OVERFLOW": (3, 5, STD, 1, 13);
    BrcMultipartRequestTimeout = "OFPBRC_MULTIPART_REQUEST_TIMEOUT": (3, 3, ONF, 2640, 0), (4, 5, STD, 1, 14);
    BrcMultipartReplyTimeout = "OFPBRC_MULTIPART_REPLY_TIMEOUT": (3, 3, ONF, 2641, 0), (4, 5, STD, 1, 15);
    BrcMultipartBadSched = "OFPBRC_MULTIPART_BAD_SCHED": (5, 5, STD, 1, 16);
    BrcPipelineFieldsOnly = "OFPBRC_PIPELINE_FIELDS_ONLY": (5, 5, STD, 1, 17);
    BrcUnknown = "OFPBRC_UNKNOWN": (5, 5, STD, 1, 18);
    BacBadType = "OFPBAC_BAD_TYPE": (0, 5, STD, 2, 0);
    BacBadLen = "OFPBAC_BAD_LEN": (0, 5, STD, 2, 1);
    BacBadVendor = "OFPBAC_BAD_VENDOR": (0, 5, STD, 2, 2);
    BacBadVendorType = "OFPBAC_BAD_VENDOR_TYPE": (0, 5, STD, 2, 3);
    BacBadOutPort = "OFPBAC_BAD_OUT_PORT": (0, 5, STD, 2, 4);
    BacBadArgument = "OFPBAC_BAD_ARGUMENT": (0, 5, STD, 2, 5);
    BacEperm = "OFPBAC_EPERM": (0, 5, STD, 2, 6);
    BacTooMany = "OFPBAC_TOO_MANY": (0, 5, STD, 2, 7);
    BacBadQueue = "OFPBAC_BAD_QUEUE": (0, 5, STD, 2, 8);
    BacBadOutGroup = "OFPBAC_BAD_OUT_GROUP": (0, 0, NX, 2, 9), (1, 5, STD, 2, 9);
    BacMatchInconsistent = "OFPBAC_MATCH_INCONSISTENT": (0, 0, NX, 1, 522), (1, 5, STD, 2, 10);
    BacUnsupportedOrder = "OFPBAC_UNSUPPORTED_ORDER": (1, 5, STD, 2, 11);
    BacBadTag = "OFPBAC_BAD_TAG": (1, 5, STD, 2, 12);
    BacBadSetType = "OFPBAC_BAD_SET_TYPE": (0, 1, NX, 1, 523), (2, 5, STD, 2, 13);
    BacBadSetLen = "OFPBAC_BAD_SET_LEN": (0, 1, NX, 1, 524), (2, 5, STD, 2, 14);
    BacBadSetArgument = "OFPBAC_BAD_SET_ARGUMENT": (0, 1, NX, 1, 525), (2, 5, STD, 2, 15);
    BacBadSetMask = "OFPBAC_BAD_SET_MASK": (3, 4, ONF, 4250, 0), (5, 5, STD, 2, 16);
    BacBadMeter = "OFPBAC_BAD_METER": (5, 5, STD, 2, 17);
    BicUnknownInst = "OFPBIC_UNKNOWN_INST": (1, 5, STD, 3, 0);
    BicUnsupInst = "OFPBIC_UNSUP_INST": (0, 0, NX, 2, 257), (1, 5, STD, 3, 1);
    BicBadTableId = "OFPBIC_BAD_TABLE_ID": (1, 5, STD, 3, 2);
    BicUnsupMetadata = "OFPBIC_UNSUP_METADATA": (1, 5, STD, 3, 3);
    BicUnsupMetadataMask = "OFPBIC_UNSUP_METADATA_MASK": (1, 5, STD, 3, 4);
    BicBadExperimenter = "OFPBIC_BAD_EXPERIMENTER": (1, 5, STD, 3, 5);
    BicBadExpType = "OFPBIC_BAD_EXP_TYPE": (1, 1, STD, 3, 5), (2, 5, STD, 3, 6);
    BicBadLen = "OFPBIC_BAD_LEN": (2, 5, STD, 3, 7);
    BicEperm = "OFPBIC_EPERM": (2, 5, STD, 3, 8);
    BicDupInst = "OFPBIC_DUP_INST": (1, 1, NX, 3, 256), (2, 3, ONF, 2600, 0), (4, 5, STD, 3, 9);
    BmcBadType = "OFPBMC_BAD_TYPE": (1, 5, STD, 4, 0);
    BmcBadLen = "OFPBMC_BAD_LEN": (1, 5, STD, 4, 1);
    BmcBadTag = "OFPBMC_BAD_TAG": (1, 5, STD, 4, 2);
    BmcBadDlAddrMask = "OFPBMC_BAD_DL_ADDR_MASK": (1, 5, STD, 4, 3);
    BmcBadNwAddrMask = "OFPBMC_BAD_NW_ADDR_MASK": (1, 5, STD, 4, 4);
    BmcBadWildcards = "OFPBMC_BAD_WILDCARDS": (0, 0, NX, 1, 262), (1, 5, STD, 4, 5);
    BmcBadField = "OFPBMC_BAD_FIELD": (0, 0, NX, 0, 263), (1, 5, STD, 4, 6);
    BmcBadValue = "OFPBMC_BAD_VALUE": (0, 0, NX, 1, 258), (1, 5, STD, 4, 7);
    BmcBadMask = "OFPBMC_BAD_MASK": (0, 1, NX, 1, 259), (2, 5, STD, 4, 8);
    BmcBadPrereq = "OFPBMC_BAD_PREREQ": (0, 1, NX, 1, 260), (2, 5, STD, 4, 9);
    BmcDupField = "OFPBMC_DUP_FIELD": (0, 1, NX, 1, 261), (2, 5, STD, 4, 10);
    BmcEperm = "OFPBMC_EPERM": (2, 5, STD, 4, 11);
    FmfcBadEmergTimeout = "OFPFMFC_BAD_EMERG_TIMEOUT": (0, 0, STD, 3, 3);
    FmfcUnsupported = "OFPFMFC_UNSUPPORTED": (0, 0, STD, 3, 5);
    FmfcUnknown = "OFPFMFC_UNKNOWN": (1, 5, STD, 5, 0);
    FmfcTableFull = "OFPFMFC_TABLE_FULL": (0, 0, STD, 3, 0), (1, 5, STD, 5, 1);
    FmfcBadTableId = "OFPFMFC_BAD_TABLE_ID": (1, 5, STD, 5, 2);
    FmfcOverlap = "OFPFMFC_OVERLAP": (0, 0, STD, 3, 1), (1, 5, STD, 5, 3);
    FmfcEperm = "OFPFMFC_EPERM": (0, 0, STD, 3, 2), (1, 5, STD, 5, 4);
    FmfcBadTimeout = "OFPFMFC_BAD_TIMEOUT": (1, 5, STD, 5, 5);
    FmfcBadCommand = "OFPFMFC_BAD_COMMAND": (0, 0, STD, 3, 4), (1, 5, STD, 5, 6);
    FmfcBadFlags = "OFPFMFC_BAD_FLAGS": (0, 0, NX, 3, 258), (1, 1, NX, 5, 258), (2, 5, STD, 5, 7);
    FmfcCantSync = "OFPFMFC_CANT_SYNC": (4, 5, STD, 5, 8);
    FmfcBadPriority = "OFPFMFC_BAD_PRIORITY": (3, 3, ONF, 2360, 0), (4, 5, STD, 5, 9);
    FmfcIsSync = "OFPFMFC_IS_SYNC": (4, 5, STD, 5, 10);
    GmfcGroupExists = "OFPGMFC_GROUP_EXISTS": (0, 0, NX, 6, 0), (1, 5, STD, 6, 0);
    GmfcInvalidGroup = "OFPGMFC_INVALID_GROUP": (0, 0, NX, 6, 1), (1, 5, STD, 6, 1);
    GmfcWeightUnsupported = "OFPGMFC_WEIGHT_UNSUPPORTED": (0, 0, NX, 6, 2), (1, 5, STD, 6, 2);
    GmfcOutOfGroups = "OFPGMFC_OUT_OF_GROUPS": (0, 0, NX, 6, 3), (1, 5, STD, 6, 3);
    GmfcOutOfBuckets = "OFPGMFC_OUT_OF_BUCKETS": (0, 0, NX, 6, 4), (1, 5, STD, 6, 4);
    GmfcChainingUnsupported = "OFPGMFC_CHAINING_UNSUPPORTED": (0, 0, NX, 6, 5), (1, 5, STD, 6, 5);
    GmfcWatchUnsupported = "OFPGMFC_WATCH_UNSUPPORTED": (0, 0, NX, 6, 6), (1, 5, STD, 6, 6);
    GmfcLoop = "OFPGMFC_LOOP": (0, 0, NX, 6, 7), (1, 5, STD, 6, 7);
    GmfcUnknownGroup = "OFPGMFC_UNKNOWN_GROUP": (0, 0, NX, 6, 8), (1, 5, STD, 6, 8);
    GmfcChainedGroup = "OFPGMFC_CHAINED_GROUP": (0, 0, NX, 6, 9), (2, 5, STD, 6, 9);
    GmfcBadType = "OFPGMFC_BAD_TYPE": (0, 0, NX, 6, 10), (2, 5, STD, 6, 10);
    GmfcBadCommand = "OFPGMFC_BAD_COMMAND": (0, 0, NX, 6, 11), (2, 5, STD, 6, 11);
    GmfcBadBucket = "OFPGMFC_BAD_BUCKET": (0, 0, NX, 6, 12), (2, 5, STD, 6, 12);
    GmfcBadWatch = "OFPGMFC_BAD_WATCH": (0, 0, NX, 6, 13), (2, 5, STD, 6, 13);
    GmfcEperm = "OFPGMFC_EPERM": (0, 0, NX, 6, 14), (2, 5, STD, 6, 14);
    GmfcUnknownBucket = "OFPGMFC_UNKNOWN_BUCKET": (0, 0, NX, 6, 15), (5, 5, STD, 6, 15);
    GmfcBucketExists = "OFPGMFC_BUCKET_EXISTS": (0, 0, NX, 6, 16), (5, 5, STD, 6, 16);
    PmfcBadPort = "OFPPMFC_BAD_PORT": (0, 0, STD, 4, 0), (1, 5, STD, 7, 0);
    PmfcBadHwAddr = "OFPPMFC_BAD_HW_ADDR": (0, 0, STD, 4, 1), (1, 5, STD, 7, 1);
    PmfcBadConfig = "OFPPMFC_BAD_CONFIG": (1, 5, STD, 7, 2);
    PmfcBadAdvertise = "OFPPMFC_BAD_ADVERTISE": (1, 5, STD, 7, 3);
    PmfcEperm = "OFPPMFC_EPERM": (2, 5, STD, 7, 4);
    TmfcBadTable = "OFPTMFC_BAD_TABLE": (1, 5, STD, 8, 0);
    TmfcBadConfig = "OFPTMFC_BAD_CONFIG": (1, 5, STD, 8, 1);
    TmfcEperm = "OFPTMFC_EPERM": (2, 5, STD, 8, 2);
    QofcBadPort = "OFPQOFC_BAD_PORT": (0, 0, STD, 5, 0), (1, 5, STD, 9, 0);
    QofcBadQueue = "OFPQOFC_BAD_QUEUE": (0, 0, STD, 5, 1), (1, 5, STD, 9, 1);
    QofcEperm = "OFPQOFC_EPERM": (0, 0, STD, 5, 2), (1, 5, STD, 9, 2);
    ScfcBadFlags = "OFPSCFC_BAD_FLAGS": (1, 5, STD, 10, 0);
    ScfcBadLen = "OFPSCFC_BAD_LEN": (1, 5, STD, 10, 1);
    ScfcEperm = "OFPSCFC_EPERM": (2, 5, STD, 10, 2);
    RrfcStale = "OFPRRFC_STALE": (2, 5, STD, 11, 0);
    RrfcUnsup = "OFPRRFC_UNSUP": (2, 5, STD, 11, 1);
    RrfcBadRole = "OFPRRFC_BAD_ROLE": (0, 1, NX, 1, 513), (2, 5, STD, 11, 2);
    RrfcIdUnsup = "OFPRRFC_ID_UNSUP": (5, 5, STD, 11, 3);
    RrfcIdInUse = "OFPRRFC_ID_IN_USE": (5, 5, STD, 11, 4);
    MmfcUnknown = "OFPMMFC_UNKNOWN": (3, 5, STD, 12, 0);
    MmfcMeterExists = "OFPMMFC_METER_EXISTS": (3, 5, STD, 12, 1);
    MmfcInvalidMeter = "OFPMMFC_INVALID_METER": (3, 5, STD, 12, 2);
    MmfcUnknownMeter = "OFPMMFC_UNKNOWN_METER": (3, 5, STD, 12, 3);
    MmfcBadCommand = "OFPMMFC_BAD_COMMAND": (3, 5, STD, 12, 4);
    MmfcBadFlags = "OFPMMFC_BAD_FLAGS": (3, 5, STD, 12, 5);
    MmfcBadRate = "OFPMMFC_BAD_RATE": (3, 5, STD, 12, 6);
    MmfcBadBurst = "OFPMMFC_BAD_BURST": (3, 5, STD, 12, 7);
    MmfcBadBand = "OFPMMFC_BAD_BAND": (3, 5, STD, 12, 8);
    MmfcBadBandValue = "OFPMMFC_BAD_BAND_VALUE": (3, 5, STD, 12, 9);
    MmfcOutOfMeters = "OFPMMFC_OUT_OF_METERS": (3, 5, STD, 12, 10);
    MmfcOutOfBands = "OFPMMFC_OUT_OF_BANDS": (3, 5, STD, 12, 11);
    TffcBadTable = "OFPTFFC_BAD_TABLE": (3, 5, STD, 13, 0);
    TffcBadMetadata = "OFPTFFC_BAD_METADATA": (3, 5, STD, 13, 1);
    TffcEperm = "OFPTFFC_EPERM": (3, 5, STD, 13, 5);
    TffcBadCapa = "OFPTFFC_BAD_CAPA": (5, 5, STD, 13, 6);
    TffcBadMaxEnt = "OFPTFFC_BAD_MAX_ENT": (5, 5, STD, 13, 7);
    TffcBadFeatures = "OFPTFFC_BAD_FEATURES": (5, 5, STD, 13, 8);
    TffcBadCommand = "OFPTFFC_BAD_COMMAND": (5, 5, STD, 13, 9);
    TffcTooMany = "OFPTFFC_TOO_MANY": (5, 5, STD, 13, 10);
    BpcBadType = "OFPBPC_BAD_TYPE": (0, 1, NX, 13, 2), (2, 2, NX, 25, 0), (3, 3, STD, 13, 2), (4, 5, STD, 14, 0);
    BpcBadLen = "OFPBPC_BAD_LEN": (0, 1, NX, 13, 3), (2, 2, NX, 26, 0), (3, 3, STD, 13, 3), (4, 5, STD, 14, 1);
    BpcBadValue = "OFPBPC_BAD_VALUE": (0, 1, NX, 13, 4), (2, 2, NX, 27, 0), (3, 3, STD, 13, 4), (4, 5, STD, 14, 2);
    BpcTooMany = "OFPBPC_TOO_MANY": (0, 1, NX, 14, 3), (2, 2, NX, 28, 0), (3, 3, ONF, 4443, 0), (4, 5, STD, 14, 3);
    BpcDupType = "OFPBPC_DUP_TYPE": (0, 1, NX, 14, 4), (2, 2, NX, 29, 0), (3, 3, ONF, 4444, 0), (4, 5, STD, 14, 4);
    BpcBadExperimenter = "OFPBPC_BAD_EXPERIMENTER": (0, 1, NX, 14, 5), (2, 2, NX, 30, 0), (3, 3, ONF, 4445, 0), (4, 5, STD, 14, 5);
    BpcBadExpType = "OFPBPC_BAD_EXP_TYPE": (0, 1, NX, 14, 6), (2, 2, NX, 31, 0), (3, 3, ONF, 4446, 0), (4, 5, STD, 14, 6);
    BpcBadExpValue = "OFPBPC_BAD_EXP_VALUE": (0, 1, NX, 14, 7), (2, 2, NX, 32, 0), (3, 3, ONF, 4447, 0), (4, 5, STD, 14, 7);
    BpcEperm = "OFPBPC_EPERM": (0, 1, NX, 14, 8), (2, 2, NX, 33, 0), (3, 3, ONF, 4448, 0), (4, 5, STD, 14, 8);
    AcfcInvalid = "OFPACFC_INVALID": (3, 3, ONF, 2370, 0), (4, 5, STD, 15, 0);
    AcfcUnsupported = "OFPACFC_UNSUPPORTED": (3, 3, ONF, 2371, 0), (4, 5, STD, 15, 1);
    AcfcEperm = "OFPACFC_EPERM": (3, 3, ONF, 2372, 0), (4, 5, STD, 15, 2);
    BfcUnknown = "OFPBFC_UNKNOWN": (3, 3, ONF, 2300, 0), (4, 5, STD, 17, 0);
    BfcEperm = "OFPBFC_EPERM": (3, 3, ONF, 2301, 0), (4, 5, STD, 17, 1);
    BfcBadId = "OFPBFC_BAD_ID": (3, 3, ONF, 2302, 0), (4, 5, STD, 17, 2);
    BfcBundleExist = "OFPBFC_BUNDLE_EXIST": (3, 3, ONF, 2303, 0), (4, 5, STD, 17, 3);
    BfcBundleClosed = "OFPBFC_BUNDLE_CLOSED": (3, 3, ONF, 2304, 0), (4, 5, STD, 17, 4);
    BfcOutOfBundles = "OFPBFC_OUT_OF_BUNDLES": (3, 3, ONF, 2305, 0), (4, 5, STD, 17, 5);
    BfcBadType = "OFPBFC_BAD_TYPE": (3, 3, ONF, 2306, 0), (4, 5, STD, 17, 6);
    BfcBadFlags = "OFPBFC_BAD_FLAGS": (3, 3, ONF, 2307, 0), (4, 5, STD, 17, 7);
    BfcMsgBadLen = "OFPBFC_MSG_BAD_LEN": (3, 3, ONF, 2308, 0), (4, 5, STD, 17, 8);
    BfcMsgBadXid = "OFPBFC_MSG_BAD_XID": (3, 3, ONF, 2309, 0), (4, 5, STD, 17, 9);
    BfcMsgUnsup = "OFPBFC_MSG_UNSUP": (3, 3, ONF, 2310, 0), (4, 5, STD, 17, 10);
    BfcMsgConflict = "OFPBFC_MSG_CONFLICT": (3, 3, ONF, 2311, 0), (4, 5, STD, 17, 11);
    BfcMsgTooMany = "OFPBFC_MSG_TOO_MANY": (3, 3, ONF, 2312, 0), (4, 5, STD, 17, 12);
    BfcMsgFailed = "OFPBFC_MSG_FAILED": (3, 3, ONF, 2313, 0), (4, 5, STD, 17, 13);
    BfcTimeout = "OFPBFC_TIMEOUT": (3, 3, ONF, 2314, 0), (4, 5, STD, 17, 14);
    BfcBundleInProgress = "OFPBFC_BUNDLE_IN_PROGRESS": (3, 3, ONF, 2315, 0), (4, 5, STD, 17, 15);
    BfcSchedNotSupported = "OFPBFC_SCHED_NOT_SUPPORTED": (5, 5, STD, 17, 16);
    BfcSchedFuture = "OFPBFC_SCHED_FUTURE": (5, 5, STD, 17, 17);
    BfcSchedPast = "OFPBFC_SCHED_PAST": (5, 5, STD, 17, 18);
    BfcBadVersion = "OFPBFC_BAD_VERSION": (4, 5, NX, 22, 0);
    MofcUnknown = "OFPMOFC_UNKNOWN": (4, 5, STD, 16, 0);
    MofcMonitorExists = "OFPMOFC_MONITOR_EXISTS": (0, 1, NX, 1, 517), (2, 3, NX, 6, 0), (4, 5, STD, 16, 1);
    MofcInvalidMonitor = "OFPMOFC_INVALID_MONITOR": (4, 5, STD, 16, 2);
    MofcUnknownMonitor = "OFPMOFC_UNKNOWN_MONITOR": (0, 1, NX, 1, 519), (2, 3, NX, 8, 0), (4, 5, STD, 16, 3);
    MofcBadCommand = "OFPMOFC_BAD_COMMAND": (4, 5, STD, 16, 4);
    MofcBadFlags = "OFPMOFC_BAD_FLAGS": (0, 1, NX, 1, 518), (2, 3, NX, 7, 0), (4, 5, STD, 16, 5);
    MofcBadTableId = "OFPMOFC_BAD_TABLE_ID": (4, 5, STD, 16, 6);
    MofcBadOut = "OFPMOFC_BAD_OUT": (4, 5, STD, 16, 7);
    NxBacMustBeZero = "NXBAC_MUST_BE_ZERO": (0, 1, NX, 2, 256), (2, 5, NX, 11, 0);
    NxBacBadConjunction = "NXBAC_BAD_CONJUNCTION": (0, 1, NX, 2, 526), (2, 5, NX, 15, 0);
    NxBacBadHeaderType = "NXBAC_BAD_HEADER_TYPE": (3, 5, NX, 39, 0);
    NxBacUnknownEdProp = "NXBAC_UNKNOWN_ED_PROP": (3, 5, NX, 40, 0);
    NxBacBadEdProp = "NXBAC_BAD_ED_PROP": (3, 5, NX, 41, 0);
    NxBacCtDatapathSupport = "NXBAC_CT_DATAPATH_SUPPORT": (0, 1, NX, 1, 265), (2, 5, NX, 42, 0);
    NxBmcCtDatapathSupport = "NXBMC_CT_DATAPATH_SUPPORT": (0, 1, NX, 1, 264), (2, 5, NX, 43, 0);
    NxBrcNxmInvalid = "NXBRC_NXM_INVALID": (0, 1, NX, 1, 256), (2, 5, NX, 2, 0);
    NxBrcNxmBadType = "NXBRC_NXM_BAD_TYPE": (0, 1, NX, 1, 257), (2, 5, NX, 3, 0);
    NxBrcMustBeZero = "NXBRC_MUST_BE_ZERO": (0, 1, NX, 1, 515), (2, 5, NX, 4, 0);
    NxBrcBadReason = "NXBRC_BAD_REASON": (0, 1, NX, 1, 516), (2, 5, NX, 5, 0);
    NxBrcFmBadEvent = "NXBRC_FM_BAD_EVENT": (0, 1, NX, 1, 520), (2, 5, NX, 9, 0);
    NxBrcUnencodableError = "NXBRC_UNENCODABLE_ERROR": (0, 1, NX, 1, 521), (2, 5, NX, 10, 0);
    NxFmfcHardware = "NXFMFC_HARDWARE": (0, 1, NX, 5, 256), (2, 5, NX, 12, 0);
    NxFmfcBadTableId = "NXFMFC_BAD_TABLE_ID": (0, 1, NX, 5, 257), (2, 5, NX, 13, 0);
    NxFmfcInvalidTlvField = "NXFMFC_INVALID_TLV_FIELD": (0, 1, NX, 1, 536), (2, 5, NX, 37, 0);
    NxQofcQueueError = "NXQOFC_QUEUE_ERROR": (4, 5, NX, 23, 0);
    NxRNotSupported = "NXR_NOT_SUPPORTED": (0, 1, NX, 1, 533), (2, 5, NX, 34, 0);
    NxRStale = "NXR_STALE": (0, 1, NX, 1, 534), (2, 5, NX, 35, 0);
    NxStNotConfigured = "NXST_NOT_CONFIGURED": (0, 1, NX, 1, 535), (2, 5, NX, 36, 0);
    NxTffcDupTable = "NXTFFC_DUP_TABLE": (3, 5, NX, 44, 0);
    NxTtmfcBadCommand = "NXTTMFC_BAD_COMMAND": (0, 1, NX, 1, 527), (2, 5, NX, 16, 0);
    NxTtmfcBadOptLen = "NXTTMFC_BAD_OPT_LEN": (0, 1, NX, 1, 528), (2, 5, NX, 17, 0);
    NxTtmfcBadFieldIdx = "NXTTMFC_BAD_FIELD_IDX": (0, 1, NX, 1, 529), (2, 5, NX, 18, 0);
    NxTtmfcTableFull = "NXTTMFC_TABLE_FULL": (0, 1, NX, 1, 530), (2, 5, NX, 19, 0);
    NxTtmfcAlreadyMapped = "NXTTMFC_ALREADY_MAPPED": (0, 1, NX, 1, 531), (2, 5, NX, 20, 0);
    NxTtmfcDupEntry = "NXTTMFC_DUP_ENTRY": (0, 1, NX, 1, 532), (2, 5, NX, 21, 0);
    NxTtmfcInvalidTlvDel = "NXTTMFC_INVALID_TLV_DEL": (0, 1, NX, 1, 537), (2, 5, NX, 38, 0);
}

/// An error's number in one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ErrorCode {
    /// 0 for the standard's errors, else an experimenter id.
    pub vendor: u32,
    pub kind: u16,
    pub code: u16,
}

impl OfError {
    /// The number in `version`; None where that version cannot say it.
    pub fn code(self, version: Version) -> Option<ErrorCode> {
        let v = version.wire() - 1;
        let s = self.spans().iter().find(|s| s.0 <= v && v <= s.1)?;
        Some(ErrorCode { vendor: s.2, kind: s.3, code: s.4 })
    }

    /// The first error of the table that has this number in `version`.
    pub fn from_code(version: Version, code: ErrorCode) -> Option<OfError> {
        OfError::ALL.iter().copied().find(|e| e.code(version) == Some(code))
    }

    /// From the protocol's name, with or without `OFPERR_` in front.
    pub fn from_name(name: &str) -> Option<OfError> {
        let name = name.strip_prefix("OFPERR_").unwrap_or(name);
        OfError::ALL.iter().copied().find(|e| e.name().eq_ignore_ascii_case(name))
    }
}

impl std::fmt::Display for OfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::error::Error for OfError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_by_version() {
        let code = |e: OfError, v| e.code(v).map(|c| (c.vendor, c.kind, c.code));
        assert_eq!(code(OfError::NxBrcNxmInvalid, Version::V10), Some((NX, 1, 256)));
        assert_eq!(code(OfError::NxBrcNxmInvalid, Version::V13), Some((NX, 2, 0)));
        assert_eq!(code(OfError::BicDupInst, Version::V12), Some((ONF, 2600, 0)));
        assert_eq!(code(OfError::BicDupInst, Version::V10), None);
        assert_eq!(OfError::from_name("OFPERR_OFPBRC_BAD_LEN"), Some(OfError::BrcBadLen));
    }

    /// The way back finds an error with the same number (a few share one).
    #[test]
    fn codes_lead_back() {
        for v in Version::ALL {
            for e in OfError::ALL {
                if let Some(c) = e.code(v) {
                    assert_eq!(OfError::from_code(v, c).and_then(|e| e.code(v)), Some(c), "{e}");
                }
            }
        }
    }
}
