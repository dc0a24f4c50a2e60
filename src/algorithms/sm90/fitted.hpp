// The constants of the cost model. Each was fitted to kernels timed on an H200 (docs/notes/h200.md):
// cycles and bytes are of one multiprocessor, milliseconds of the device. None is taken from a data sheet.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_FITTED_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_FITTED_HPP_

#include "src/backend/backend.hpp"

namespace faltung::sm90::fitted {

// What they were fitted on, as its ceilings are measured: other chips' rates are taken beside these (Chip).
constexpr int kMultiprocessors = 132;
constexpr Ceilings kCeilings{{58957}, {489034}, {932276}, {975544}, 4263};

// The matrix units.
constexpr double kClock = 1.58e6;         // cycles a ms at full load: the chip lowers its clock
constexpr double kCool = 0.09;            // share by which it is faster where the units idle
constexpr double kFirstOperand = 16;      // cycles to read the 64 rows of one instruction, before its columns
constexpr double kThroughRegisters = 40;  //   where they come through registers
constexpr double kLeast = 26;             // cycles of an instruction of few columns, one group's
constexpr double kAlone = 37;             //   of few columns that the next one adds to
constexpr double kNarrowStage = 12.5;  // cycles of a stage of streamed weights a byte of its rows, below 128
constexpr double kNarrowGathered = 6.5;  //   and of one that is gathered with its pixels
constexpr double kStreamed = 1.02;       // weights that do not stay: slower by so much
constexpr double kApart = 0.9;           // of nearly fp32's products: their operands are read again and again
constexpr double kPause = 150;           // cycles until the last of its sums apart is added
constexpr double kLatency = 1500;   // cycles, once: a block's first load and last store, which nothing hides
constexpr double kLaunch = 0.0008;  // ms of a kernel, beside its work
constexpr double kBandwidth = 6e9;  // bytes a ms: memory and the last cache together, which hold much of it
constexpr double kOverlap = 0.55;   // what is lost of the shorter of arithmetic and bytes

// Lines, of which a row is read for all of its taps.
constexpr double kRowRead = 56;        // cycles to read a consumer's row of 8 channels: counted
constexpr double kReads = 0.15;        //   share of them that shows,
constexpr double kFills = 0.4;         //   and of those in which shared memory is filled
constexpr double kTilesShared = 1.06;  // where two consumers share a tile: slower by so much
constexpr double kLinesApart = 1.1;    // of nearly fp32's products: summed apart row by row

// What the copy engine loads.
constexpr double kL2 = 58;           // bytes a cycle from the last cache
constexpr double kGatherRow = 2.2;   // cycles a row of a box that is gathered, at least
constexpr double kBoxRow = 2.0;      //   and of another
constexpr double kFewBlocks = 0.27;  // share of a load's time where few blocks load
constexpr double kLoadFirst = 500;   // cycles until a load is there
constexpr double kLoadMore = 1500;   //   more where all blocks load
constexpr double kShared = 128;      // bytes a cycle that are written while the matrix units read

// 32-bit pixels that warps split in two parts.
constexpr double kPrepare = 11;     // bytes a cycle
constexpr double kScaled = 3.4;     //   of a warp that takes 16-bit pixels through scale and shift: measured
constexpr double kPrepared = 1280;  // cycles until a gathered slot's low parts are there

// The epilogue.
constexpr double kEpilogue = 1000;       // cycles a tile
constexpr double kStore = 0.06;          // cycles a 16-bit element
constexpr double kStoreApart = 4;        //   with the zeros between pixels: longer by so much
constexpr double kRows = 1.4;            // storing NCHW by rows: slower by so much
constexpr double kSingly = 4.3;          // storing 32-bit elements one at a time: slower by so much
constexpr double kChannelSum = 0.025;    // cycles an element whose channel is added up: counted
constexpr double kSumChannels = 0.0022;  // ms of the kernel that adds up blocks' parts: reckoned
constexpr double kExposed = 0.4;         // share of it that shows where two consumers share a tile
constexpr double kDrained = 0.45;        // planes: more of it for each buffer less than kEnoughPlanes
constexpr int kEnoughPlanes = 5;
constexpr double kResidual = 2500;  // cycles until a residual is there where all blocks wait for theirs
constexpr double kAcross = 1.07;    // with pixels on M a residual, and each pixel's bias: slower by so much
constexpr double kTallOfPlanes = 0.98;  // planes in tiles of 256 channels by 128 pixels
constexpr double kOneOfPlanes = 0.8;    // of all that is counted, tf32 in NCHW by one tap takes so much
constexpr double kFewFlat = 0.84;       // of all that is counted, small launches of a tile a block by one tap
constexpr double kSplit = 1500;         // cycles a tile of a split sum: the cluster's barriers
constexpr double kAdd = 0.06;           // cycles a byte of it
constexpr double kPartial = 1.0e9;      // bytes a ms: stores of half a sector, NCHW's rows of 8 pixels
constexpr double kSector = 1.4e9;       // bytes a ms: sectors written in part, by rows that begin astray

// Tiles of flat pixels in 16 bits, gathered or patches of one tap, whose sum is not split, in launches of
// some microseconds, in which the chip keeps its clock: fitted to 264 kernels of ResNet-50, by their choices
// more than by their errors.
namespace flat {
constexpr double kLeast = 0.8e9, kMost = 16e9;  // operations
constexpr double kCool = 1.29;
constexpr double kPixelRow = 3.76, kWeightRow = 1.43;
constexpr double kL2 = 62;
constexpr double kLoadMore = 2920;
constexpr double kBandwidth = 5.02e9;
constexpr double kEndTogether = 4.64;  // epilogues more at a block's end, where two consumers share a tile
constexpr double kEndInTurn = 2.3;     //   where they take turns
// In tf32, gathered: of what shared memory was counted to move, and the chip's clock.
constexpr double kMostTf32 = 16e9;  // operations
constexpr double kPortTf32 = 0.8, kCoolTf32 = 0.6;
}  // namespace flat

// Warps that read 16-bit pixels themselves (fetch, turned).
namespace reading {
constexpr double kIssue = 3;      // cycles an instruction of a warp
constexpr double kApart = 8;      //   of a load of every other pixel
constexpr double kMiss = 1500;    // cycles until a line is there, where many are wanted
constexpr double kAnswer = 1000;  //   where few are
constexpr double kHeld = 600;     //   where it goes through registers
constexpr double kFirst = 250;    // cycles of a block's barriers
constexpr double kTurn = 27;  // cycles a warp's item from a buffer: eight loads, two times 16 bytes written
constexpr double kRowBytes = 40;  // bytes a cycle of rows that the copy engine brings, which are contiguous
// Not fitted: the chip's line, a warp, the threads that read.
constexpr double kLine = 128, kWarp = 32, kThreads = 192;
}  // namespace reading

// Warps that turn 32-bit patches.
namespace turning {
constexpr double kRead = 6.4;     // bytes a cycle that they read themselves
constexpr double kRow = 10.0;     // cycles 128 bytes of a row that the copy engine brings
constexpr double kShared = 128;   // bytes a cycle that shared memory moves
constexpr double kWritten = 1.3;  // a turned byte, in bytes that it moves: some writes share banks
}  // namespace turning

// 32 bits: of all that is counted, the share that they take, by 150 kernels of ResNet-50 and 3x3 lists.
namespace parts {
constexpr double kGathered = 1.08;       // of two parts: gathered by several taps, or with a split sum,
constexpr double kTwoBuffers = 1.25;     //   a split sum, and consumers in turn, of two buffers alone,
constexpr double kPatch = 0.89;          //   small launches of patches whose results the copy engine stores,
constexpr double kTurned = 0.88;         //   and of those that are turned, by two consumers of a tile
constexpr double kGatheredInTurn = 1.1;  // of tf32: gathered, by consumers in turn,
constexpr double kTurnedSplit = 0.81;    //   turned from buffers, with a sum that is split
}  // namespace parts

// Shifted sums; likewise, fitted to 190 kernels.
namespace shifting {
constexpr double kClock = 1.65e6;      // cycles a ms: the units are never as busy
constexpr double kStreamed = 1.13;     // products with weights that are streamed: slower by so much
constexpr double kL2 = 47;             // bytes a cycle
constexpr double kRowCycles = 1.54;    // cycles a row of a box
constexpr double kWindow = 1220;       // cycles of an epilogue: a window
constexpr double kRow = 309;           //   a consumer's row of it
constexpr double kSingly = 0.18;       //   a result that the copy engine does not store
constexpr double kResidual = 1.35;     //   an element of a residual that the copy engine does not bring
constexpr double kExposed = 0.67;      // share of the epilogue that shows where weights are streamed
constexpr double kBandwidth = 3.05e9;  // bytes a ms
constexpr double kOverlap = 0.45;      // what is lost of the shorter of arithmetic and bytes
}  // namespace shifting

// The steps around the kernel.
namespace steps {
constexpr double kTurn = 2.9e9;           // bytes a ms of one that turns or pads the input
constexpr double kFewChannels = 0.0045;   // ms more where few channels go by another way
constexpr double kGather = 4e9;           // bytes a ms of one that gathers few channels
constexpr double kGatherLine = 4.4e6;     //   of a block of it, which folds lines: by one row of 8 long lines
constexpr double kGatherLaunch = 0.0016;  // ms
constexpr double kSkip = 2.65e9;          // bytes a ms of one that skips what strides leave out
constexpr double kSpread = 3.9e9;         //   written by one that spreads pixels
constexpr double kZeros = 3.0e9;          //   of phases without taps
constexpr double kBetween = 5.0e9;        //   zeros between pixels that a kernel stores
}  // namespace steps

}  // namespace faltung::sm90::fitted

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_FITTED_HPP_
