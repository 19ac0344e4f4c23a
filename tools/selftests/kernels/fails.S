// SPDX-License-Identifier: GPL-2.0 OR MIT
// Kernels that fail, and one that does not, for work-groups of any size. Argument: an address, which load_from alone uses.

// kernel NAME REGISTERS: its descriptor.
	.macro kernel name, registers
	.section .rodata,"a",@progbits
	.p2align 6
	.amdhsa_kernel \name
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_next_free_vgpr \registers
		.amdhsa_next_free_sgpr 8
		.amdhsa_kernarg_size 8
#ifdef __gfx90a__
		.amdhsa_accum_offset \registers
#endif
	.end_amdhsa_kernel
	.text
	.p2align 8
	.globl \name
	.type \name,@function
\name:
	.endm

	// SOPP has no operation 31.
	kernel illegal_instruction, 4
	.long 0xbf9f0000
	s_endpgm

	// By the convention of the ABI, the wave aborts.
	kernel trap_abort, 4
	s_trap 2
	s_endpgm

	kernel trap_other, 4
	s_trap 5
	s_endpgm

	// s[0:1]: the argument, an address
	kernel load_from, 4
	s_load_dwordx2 s[2:3], s[0:1], 0x0
	s_waitcnt lgkmcnt(0)
	v_mov_b32_e32 v2, s2
	v_mov_b32_e32 v3, s3
	global_load_dword v1, v[2:3], off
	s_waitcnt vmcnt(0)
	s_endpgm

	// A SIMD has as many registers for one such wave, not for the four that are its part of 16.
	kernel many_registers, 256
	s_endpgm

	kernel nothing, 4
	s_endpgm
