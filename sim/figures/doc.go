// Package figures makes the figures of the papers from simulations of the
// algorithms that are shipped: what is run, the plots and tables, and what
// comes out for each claim of the papers.
//
// Figures 4 to 7 are those of the paper on relative consensus voting (Cao,
// Zhou, Chen and Wu), with the same model: Tn = 5, Tc = 10. The others put the
// read/write algorithm beside the form that its paper has, and show what is
// gained by keeping permissions.
//
// A verdict is computed from what was measured, never written down: each claim
// has the rule by which it holds beside it.
package figures
