// What the kernels know when they are compiled: the host's kConfig, and what follows from it.
#pragma once
#include "kernels/sm90/config.h"
#include "kernels/sm90/depths.h"
#include "kernels/sm90/layout.h"
#include "kernels/sm90/params.h"

#pragma nv_diag_suppress 177  // no kernel needs every constant

using namespace faltung::sm90;

constexpr Bring kBring = kConfig.tile.bring;
constexpr Way kWay = kConfig.way;
constexpr bool kFlat = kConfig.tile.flat();
constexpr bool kCooperative = kConfig.tile.cooperative();
constexpr bool kPixelsOnM = kConfig.tile.pixels_on_m();
constexpr bool kFilterAsItIs = kConfig.tile.filter_as_it_is();
constexpr bool kPhased = kConfig.tile.phased();
constexpr int kPhases = kConfig.tile.phases;
constexpr bool kInTurn = kConfig.phase_order == faltung::sm90::PhaseOrder::in_turn;
constexpr bool kResident = kConfig.tile.resident();
constexpr int kSharers = kConfig.tile.sharers();

// Of a consumer: blocks of 64 rows, blocks of columns, columns of one.
constexpr int kMBlocks = kConfig.tile.m_blocks(), kNBlocks = kConfig.tile.n_blocks(), kN = kConfig.tile.n();
constexpr int kColumns = columns(kConfig);  // of an instruction: of them all, or of a half
constexpr int kKBlock = kConfig.tile.k_block;  // input channels at a time
constexpr int kTileChannels = kConfig.tile.channels, kTilePixels = kConfig.tile.pixels();
constexpr int kTileWidth = kConfig.tile.width, kTileHeight = kConfig.tile.height;
constexpr int kS = kConfig.s, kTaps = kConfig.taps();
constexpr int kDilationH = kConfig.dilation_h, kDilationW = kConfig.dilation_w;
constexpr bool kVolume = kConfig.volume;
constexpr int kT = kConfig.t, kDilationD = kConfig.dilation_d;
constexpr int kStrideH = kConfig.stride_h, kStrideW = kConfig.stride_w;  // of patches
constexpr int kSplit = kConfig.tile.split, kTileGroups = kConfig.tile.groups;

constexpr bool kF32 = kConfig.element == Element::f32, kBf16 = kConfig.element == Element::bf16;
constexpr int kElement = kConfig.element_bytes(), kParts = kConfig.parts;
constexpr bool kNchw = kConfig.nchw, kBias = kConfig.bias, kF32Bias = kConfig.f32_bias;
constexpr bool kResidual = kConfig.residual, kStats = kConfig.stats;
constexpr bool kResidualAfter = kConfig.residual_after, kGates = kConfig.gates;
constexpr Pooling kPooling = kConfig.pooling;
constexpr bool kPools = kPooling != Pooling::none;
constexpr int kWindow = kConfig.pool_window, kStore = kConfig.pixels_a_store;
constexpr bool kSlopes = kConfig.slopes, kOfChannel = kBias || kSlopes;

// Shared memory: buffers of pixels and of weights, one after the other.
constexpr int kSlots = kConfig.tile.pixel_slots, kStages = kConfig.weight_buffers();
constexpr int kRow = row_bytes(kConfig);  // of an operand: a pixel's or an output channel's block of channels
constexpr int kWeightRow = weight_row_bytes(kConfig);
constexpr int kSlotBytes = slot_bytes(kConfig), kPartStride = part_stride(kConfig),
              kSlotStride = slot_stride(kConfig);
constexpr int kStageBytes = stage_bytes(kConfig), kStagePartStride = stage_part_stride(kConfig),
              kStageStride = stage_stride(kConfig);
constexpr int kStagingBytes = staging_bytes(kConfig);  // of a consumer's area,
constexpr int kAreas = kConfig.tile.result_areas;      //   of which it has so many
static_assert(shared_bytes(kConfig) <= kSharedLimit, "shared memory");
