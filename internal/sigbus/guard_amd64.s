//go:build linux

#include "textflag.h"

// lowest is where mappings of files begin: below are the program and the heap of Go,
// of which nothing may be lost.
#define lowest 0x600000000000

// handler is called by the kernel on the signal stack, with DI the signal, SI the
// siginfo_t and DX the context. It may change all registers: the kernel restores
// them. It calls nothing, and of the stack it uses 8 bytes of the red zone.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	CMPL 8(SI), $2            // si_code: BUS_ADRERR, a page that could not be had
	JNE  other
	MOVQ 16(SI), R9           // si_addr
	MOVQ $lowest, AX
	CMPQ R9, AX
	JCS  other
	ANDQ $~4095, R9
	MOVQ DI, R12
	MOVQ SI, R13
	MOVQ DX, R14
	MOVQ R9, R15

	// A page that was swapped out, and cannot be read back, is no page of a file.
	MOVQ ·pagemap(SB), DI
	LEAQ -8(SP), SI
	MOVQ $8, DX
	MOVQ R15, R10
	SHRQ $9, R10              // 8 bytes for each page of 4096
	MOVQ $17, AX              // pread64
	SYSCALL
	CMPQ AX, $8
	JNE  failed
	MOVQ -8(SP), AX
	BTQ  $62, AX              // swapped
	JCS  failed

	MOVQ R15, DI
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
