//go:build !windows

package dashboard

import "testing"

func TestU09_U12_SlotsFillAndDrainAndTheSumsAreRight(t *testing.T) {
	passed(t, "U09 U12 slots fill and drain, and every number on the screen adds up")
}

func TestU06_U08_U12_WhoWaitsWhyAndUntilWhat(t *testing.T) {
	passed(t, "U06 U08 U12 who waits, why, and what will let it go, without a click and in the words of the API")
}

func TestU07_TheRecordOfARequest(t *testing.T) {
	passed(t, "U07 the record of a request has its candidates and why each was passed over")
}

func TestAProviderIsDisabledAndEnabledAgain(t *testing.T) {
	passed(t, "a provider is disabled, after a question, and enabled again")
}

func TestARequestIsCancelledAndItsClientIsTold(t *testing.T) {
	passed(t, "a request is cancelled and its client is told")
}

func TestU10_Case_J12_AMachineThatHasGoneIsShownSo(t *testing.T) {
	passed(t, "U10 J12 a machine that has gone, or is silent, is shown so, in its place, as the API has it")
}

func TestCase_J11_TheUnknownIsShownAsUnknown(t *testing.T) {
	passed(t, "J11 what an Edge does not know is shown as unknown, and the rest is there")
}

func TestCase_I11_ThereIsAWayInWithKeysOn(t *testing.T) {
	passed(t, "I11 with keys on there is a way in: a token as Bearer, which an API key is not")
}

func TestU19_ABadFileIsShownAndChangesNothing(t *testing.T) {
	passed(t, "U19 a bad file leaves the old configuration in force, and the page says so")
}

func TestU12_AKilledEdgeIsStaleAndComesBack(t *testing.T) {
	passed(t, "U12 an Edge that is killed shows as stale, and the page comes back by itself")
}

func TestU12_ASilentNetworkIsStale(t *testing.T) {
	passed(t, "U12 a network that falls silent shows as stale within seconds")
}

func TestU12_FromEventToPixel(t *testing.T) {
	passed(t, "U12 from event to pixel")
}

func TestU14_TenTabs(t *testing.T) {
	passed(t, "U14 a hidden tab holds no stream, and ten tabs over HTTP/1.1 load")
}

func TestU13_FocusScrollAndSelectionStay(t *testing.T) {
	passed(t, "U13 updates move neither focus, scroll, selection nor the order of machines")
}

func TestU13_TheFirstAlertMovesNothing(t *testing.T) {
	passed(t, "U13 the first alert moves nothing")
}

func TestU13_ADialogKeepsItsFocus(t *testing.T) {
	passed(t, "U13 a dialog keeps its focus while the page behind it changes")
}

func TestU13_Pause(t *testing.T) {
	passed(t, "U13 Pause holds the screen, and Resume shows the present")
}

func TestU12_U15_EveryPageInLight(t *testing.T) {
	passed(t, "U12 U15 every page at both widths, in light")
}

func TestU12_U15_EveryPageInDark(t *testing.T) {
	passed(t, "U12 U15 every page at both widths, in dark")
}

func TestU12_APhone(t *testing.T) {
	passed(t, "U12 on a phone all is there without a click, and a finger hits it")
}

func TestU16_NothingFromElsewhere(t *testing.T) {
	passed(t, "U16 nothing from elsewhere, nothing that the policy refuses, at most 150 KiB")
}

func TestU15_ByKeyboardAlone(t *testing.T) {
	passed(t, "U15 a request is found, read and cancelled by keyboard alone")
}

func TestU12_Case_J12_AnEdgeOfAFleetTurnsStaleAndComesBack(t *testing.T) {
	passed(t, "U12 J12 an Edge of a fleet that is killed turns stale, the others live on, and it comes back")
}

func TestU01_Case_I11_UpSaysHowToGetIn(t *testing.T) {
	passed(t, "U01 I11 iop up prints the dashboard's address and where its token is, and both work")
}
