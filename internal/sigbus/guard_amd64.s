//go:build linux

#include "textflag.h"

// handler is called by the kernel on the signal stack, with DI the signal, SI the
// siginfo_t and DX the context. It may change all registers: the kernel restores
// them. It calls nothing and uses no stack.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	CMPL 8(SI), $2            // si_code: BUS_ADRERR, a page that could not be had
	JNE  other
	MOVQ DI, R12
	MOVQ SI, R13
	MOVQ DX, R14
	MOVQ 16(SI), DI           // si_addr
	ANDQ $~4095, DI
	MOVQ $4096, SI
	MOVQ $3, DX               // PROT_READ|PROT_WRITE
	MOVQ $0x32, R10           // MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS
	MOVQ $-1, R8
	MOVQ $0, R9
	MOVQ $9, AX               // mmap
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JCC  failed
	MOVQ $1, AX
	LOCK
	XADDQ AX, ·faults(SB)
	RET                       // to the restorer, which the kernel has pushed

failed:
	MOVQ R12, DI
	MOVQ R13, SI
	MOVQ R14, DX

other:
	MOVQ ·goHandler(SB), AX
	JMP  AX

// func handlerPC() uintptr
TEXT ·handlerPC(SB), NOSPLIT, $0-8
	LEAQ ·handler(SB), AX
	MOVQ AX, ret+0(FP)
	RET
